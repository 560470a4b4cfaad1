"""Names of copies: from templates, one per collection, and never what the handler follows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.destination import Template
from tailrace.event import Namespace
from tailrace.model import Scope
from tailrace.model.cluster import ClusterIdentity

POSITIONS = "tailrace_positions"
"""The collection of positions. The names of all others of Tailrace begin alike."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of copies, from templates of database and collection."""

    database: Template
    collection: Template

    def of(self, scope: str, source: Namespace) -> Namespace:
        """The copy of a collection."""
        db, coll = source.db, source.coll or ""
        return Namespace(
            self.database.name(db, coll, scope=scope), self.collection.name(db, coll, scope=scope)
        )


def covers(scope: Scope, target: Namespace) -> bool:
    """Whether the scope follows the collection; for a database: any collection of it."""
    if target.coll is None:
        return scope.database in (None, target.db)
    return scope.covers(target.db, target.coll)


def shared(copy: Namespace, former: Namespace, source: Namespace) -> str:
    """That two collections would have one copy, and what to do."""
    return (
        f"{former} and {source} would share the copy {copy}: put {{database}} into the name of the "
        "copy or of its database"
    )


def followed(
    ours: ClusterIdentity, theirs: str, targets: Sequence[Namespace], scopes: Sequence[Scope]
) -> str:
    """Why the handler may not write to these targets: it follows them. Empty if it may.

    ``ours`` is the cluster to which it writes, ``theirs`` that which it follows ("" if unknown).
    A target without a collection is any collection of its database.
    """
    source = ClusterIdentity.parse(theirs)
    if not theirs or not ours.may_be(source):
        return ""
    for target in targets:
        for scope in scopes:
            if covers(scope, target):
                message = f"it would write to {target}, which scope {scope.name!r} follows"
                if ours.unique and source.unique:
                    return f"{message}: its uri leads to the same cluster. Choose another database"
                return (
                    f"{message}, and it cannot tell whether its uri leads to the same cluster "
                    f"{ours.name!r}: grant the role clusterMonitor on both, or choose another "
                    "database"
                )
    return ""


def known_targets(names: Names, state: str, scopes: Sequence[Scope]) -> Iterator[Namespace]:
    """What a handler of these scopes writes, as far as it is known before the first change."""
    yield Namespace(state, POSITIONS)
    for scope in scopes:
        if scope.database is None:
            continue
        copy = names.of(scope.name, Namespace(scope.database, scope.collection))
        if scope.collection is not None or "{collection}" not in names.collection.text:
            yield copy
        elif "{collection}" not in names.database.text:
            yield Namespace(copy.db)
