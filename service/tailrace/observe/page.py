"""The status page: one file, and the policy that lets a browser run only what stands in it."""

import base64
import hashlib
import re
from importlib.resources import files

PAGE = files("tailrace.observe").joinpath("status.html").read_bytes()
"""The same for everybody: it asks ``/status`` for all that it shows."""


def _hash(tag: str) -> str:
    """The source expression for the page's one element of that name (CSP level 3, 2.3.1)."""
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), PAGE, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


POLICY = (
    b"content-security-policy",
    "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash('script')}",
            f"style-src {_hash('style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            # No text becomes markup: the sinks that would make it so refuse strings.
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ).encode(),
)
"""The header that goes with it."""
