"""Names of databases, those that are the server's own, and the collections of a store."""

WITHOUT_EVENTS = ("admin", "config", "local")
"""The server opens no change stream on these, and a cluster's has no events of them.

https://www.mongodb.com/docs/manual/changeStreams/#watch-a-collection--database--or-deployment
"""
STORE_COLLECTIONS = ("checkpoints", "dead_letters", "leases", "desired_states", "verifications")
"""The collections of a store in MongoDB."""
_IN_NO_NAME, _MOST_BYTES = frozenset('/\\. "$\0'), 63  # mongod, NamespaceString::validDBName


def require_database(name: str) -> str:
    """The name. Raises ``ValueError`` if no database can have it."""
    if _IN_NO_NAME & {*name}:
        message = "a database's name cannot hold / \\ . \" $, a space or NUL"
        raise ValueError(f"{message}; a collection is named apart from it")
    if len(name.encode("utf-8", "replace")) > _MOST_BYTES:
        raise ValueError(f"a database's name has at most {_MOST_BYTES} bytes")
    return name


def require_followed(name: str) -> str:
    """The name. Raises ``ValueError`` if the server opens no change stream on that database."""
    if name in WITHOUT_EVENTS:
        raise ValueError(f"the server opens no change stream on {', '.join(WITHOUT_EVENTS)}")
    return name
