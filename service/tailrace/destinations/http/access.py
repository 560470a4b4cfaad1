"""What a request needs besides its body: where to, with which secrets, through which proxy.

Secrets and certificates in files are read again when they are older than a second.
"""

import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from tailrace.destinations.http.headers import header_text
from tailrace.destinations.http.settings import HttpHandlerSettings, endpoint
from tailrace.destinations.http.signature import signing_key
from tailrace.destinations.http.tls import states, tls_context
from tailrace.errors import Unavailable

FRESH_SECONDS = 1.0
"""For so long, what was read from files is used again."""


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """What all requests have in common at present."""

    url: URL
    keys: Sequence[bytes]
    headers: Mapping[str, str]
    tls: ssl.SSLContext | bool
    """``True`` without TLS."""
    proxy: URL | None = None


class CurrentAccess:
    """Reads the files of a handler's settings, and keeps for a moment what it has read."""

    def __init__(self, settings: HttpHandlerSettings) -> None:
        self._settings = settings
        self._access: EndpointAccess | None = None
        self._until = 0.0
        self._tls: tuple[Sequence[tuple[int, int, int]], ssl.SSLContext] | None = None

    def get(self) -> EndpointAccess:
        """What is current. Raises :class:`Unavailable` if a file cannot be read or used."""
        now = time.monotonic()
        if self._access is None or now >= self._until:
            try:
                self._access = self._read()
            except (OSError, ValueError) as error:
                raise Unavailable(f"a file of the handler cannot be used: {error}") from error
            self._until = now + FRESH_SECONDS
        return self._access

    def _read(self) -> EndpointAccess:
        settings = self._settings
        url = endpoint(settings.url.read())
        proxy = _proxy(settings, url)
        secure = "https" in (urlsplit(url).scheme, proxy and proxy.scheme)
        return EndpointAccess(
            URL(url),
            [signing_key(secret.read()) for secret in settings.secret],
            {name: header_text(secret.read()) for name, secret in settings.headers.items()},
            self._context() if secure else True,
            proxy,
        )

    def _context(self) -> ssl.SSLContext:
        """Made again only if its files have changed: idle connections belong to their context."""
        found = states(self._settings)
        if self._tls is None or self._tls[0] != found:
            self._tls = found, tls_context(self._settings)
        return self._tls[1]


def _proxy(settings: HttpHandlerSettings, url: str) -> URL | None:
    if settings.proxy is not None:
        return URL(endpoint(settings.proxy.read()))
    if not settings.proxy_from_environment:
        return None
    parts, proxies = urlsplit(url), getproxies()
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    found = proxies.get(parts.scheme) or proxies.get("all")
    return None if found is None else URL(endpoint(found))
