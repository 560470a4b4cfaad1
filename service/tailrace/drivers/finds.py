"""What all finds have in common: their limits, and the servers that they may run on."""

from tailrace.drivers.connection import Connection

COLLECTION_UUID_SINCE = 17
"""The wire version (server 6.0) from which ``find`` takes ``collectionUUID``."""

FIND_SECONDS = 30.0
"""How long a find may take, with all its replies. If it takes longer, the connection hangs: changes
wait for the find, and must not hang as well."""

UUID_MISMATCH = 361
"""CollectionUUIDMismatch (mongod, src/mongo/base/error_codes.yml)."""


def oldest(connection: Connection, default: int) -> int:
    """The lowest wire version of the known servers."""
    servers = connection.topology.server_descriptions().values()
    versions = [each.max_wire_version for each in servers if each.is_server_type_known]
    return min(versions, default=default)
