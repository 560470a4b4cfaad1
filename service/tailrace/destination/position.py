"""The text in which a destination stores its position."""

import json

from tailrace.engine import RunIdentity
from tailrace.errors import InvalidPosition
from tailrace.model import SinkPosition
from tailrace.model.cluster import ClusterIdentity


def position_text(position: SinkPosition, identity: RunIdentity) -> str:
    """The text that a destination stores: the position, its scope and its cluster."""
    of = {"scope": identity.scope, "cluster": identity.cluster}
    return json.dumps(of | {"position": position.to_text()})


def stored_position(text: object, identity: RunIdentity) -> SinkPosition:
    """The position that :func:`position_text` wrote for this scope and cluster.

    Raises :class:`InvalidPosition` for anything else.
    """
    if not isinstance(text, str):
        raise InvalidPosition(
            f"a position is the text of batch.position, not {type(text).__name__}"
        )
    try:
        read = json.loads(text)
        scope, cluster, position = read["scope"], read["cluster"], read["position"]
        theirs = ClusterIdentity.parse(cluster)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InvalidPosition(f"{text!r:.60} is not the text of a batch.position") from error
    if scope != identity.scope:
        raise InvalidPosition(f"it is the position of scope {scope!r}: give each scope its own")
    if identity.cluster and cluster and not theirs.may_be(ClusterIdentity.parse(identity.cluster)):
        raise InvalidPosition(
            f"it is a position in cluster {cluster}, and mongodb.uri leads to {identity.cluster}"
        )
    return SinkPosition.from_text(position)
