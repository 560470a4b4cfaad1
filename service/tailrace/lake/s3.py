"""How S3 is reached: the usual ``AWS_*`` variables, read once for every client.

The clients are obstore, delta-rs, pyarrow and Spark. Each finds the credentials by itself, in these
variables or from the machine's role.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.lake.storage import scheme

_YES = {"true", "1", "yes"}


@dataclass(frozen=True, slots=True)
class S3Access:
    """``endpoint``: a URL, empty for AWS itself; ``region``: empty if no variable names it.

    ``path_style``: whether the bucket is in the path of a URL, and not in its host.
    """

    endpoint: str
    region: str
    path_style: bool

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> S3Access:
        def first(*names: str) -> str:
            return next((value for name in names if (value := environment.get(name))), "")

        endpoint = first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        virtual = first("AWS_VIRTUAL_HOSTED_STYLE_REQUEST").lower() in _YES
        region = first("AWS_REGION", "AWS_DEFAULT_REGION")
        return cls(endpoint.rstrip("/"), region, bool(endpoint) and not virtual)

    @property
    def plain_http(self) -> bool:
        return scheme(self.endpoint) == "http"


def misplaced(url: str, what: str) -> str:
    """Why a lake, or something else, cannot lie at a URL or path; empty if it can."""
    kind = scheme(url)
    if kind not in ("", "file", "s3", "s3a"):
        return f"no {what} can lie in {kind}://: use a directory, or s3://bucket/prefix"
    if kind in ("s3", "s3a") and not bucket_of(url):
        return f"{url}: names no bucket: write s3://BUCKET/PREFIX"
    return ""


def bucket_of(url: str) -> str:
    """The bucket of an ``s3://`` URL; empty if it names none."""
    return url.partition("://")[2].partition("/")[0]
