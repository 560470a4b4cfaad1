"""The status page: one file, and the policy that lets a browser run only code in that file."""

import base64
import hashlib
import re
from importlib.resources import files

PAGE = files("tailrace.observe").joinpath("status.html").read_bytes()
"""The same bytes for everybody: the page gets all its data from ``/status``."""


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
            # Text never becomes markup: the DOM functions that parse markup refuse strings.
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ).encode(),
)
"""The header that is sent with the page."""
