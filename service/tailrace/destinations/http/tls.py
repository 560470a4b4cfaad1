"""TLS to the endpoint: which certificate authorities to trust, and a client certificate."""

import os
import ssl
from collections.abc import Sequence

from tailrace.destinations.http.settings import HttpHandlerSettings


def tls_context(settings: HttpHandlerSettings) -> ssl.SSLContext:
    """A context that verifies the server. Raises ``ValueError``, which names the key."""
    ca, certificate, key = files(settings)
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:  # an SSLError is one
        raise ValueError(f"ca_file: {ca!r} cannot be read: {error}") from error
    if certificate is not None:
        try:  # with an empty passphrase, OpenSSL does not ask the terminal for one
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:
            named = "certificate_file" if key is None else "certificate_file and key_file"
            message = f"{named}: cannot be read, or do not fit each other: {error}"
            raise ValueError(message) from error
    return context


def files(settings: HttpHandlerSettings) -> tuple[str | None, str | None, str | None]:
    """The files of TLS: authorities, certificate, key."""
    return settings.ca_file, settings.certificate_file, settings.key_file


def states(settings: HttpHandlerSettings) -> Sequence[tuple[int, int, int]]:
    """What changes with these files. Raises ``OSError`` if one is missing."""
    found = (os.stat(path) for path in files(settings) if path is not None)
    return [(each.st_mtime_ns, each.st_ino, each.st_size) for each in found]
