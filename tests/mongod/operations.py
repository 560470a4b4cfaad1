"""The operations in progress on a server."""

from collections.abc import Mapping
from typing import Any

from pymongo import MongoClient


def operations(
    client: MongoClient[dict[str, Any]],
    matching: Mapping[str, Any],
    *fields: str,
    **options: bool,
) -> list[dict[str, Any]]:
    """Those that match, with the named fields only.

    Others are not read: one may have a time that Python's dates cannot hold. ``options``: those of
    ``$currentOp``.
    """
    project = {"$project": dict.fromkeys(fields or ("opid",), 1)}
    return list(client.admin.aggregate([{"$currentOp": options}, {"$match": matching}, project]))
