"""Which member should follow which scope: a fair share each, and few moves when members change."""

from collections import Counter
from collections.abc import Sequence
from math import ceil
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.lease import Member
from tailrace.replicas.assignment import assignment

names = st.text("abcdefghijklmnop0123456789-", min_size=1, max_size=12)
scopes = st.sets(names, min_size=1, max_size=60)
members = st.lists(names, min_size=1, max_size=8, unique=True).map(
    lambda found: [Member(f"{name}/1", name) for name in found]
)
limited = st.lists(
    st.tuples(names, st.integers(0, 12)), min_size=1, max_size=8, unique_by=lambda each: each[0]
).map(lambda found: [Member(f"{name}/1", name, most) for name, most in found])


@given(scopes, members)
def test_nobody_is_to_follow_more_than_scopes_divided_by_members(
    scopes: set[str], members: list[Member]
) -> None:
    found = assignment(scopes, members)
    assert found.keys() == scopes
    assert max(Counter(found.values()).values()) <= ceil(len(scopes) / len(members))


@given(scopes, limited)
def test_a_scope_is_left_out_only_if_all_members_are_full(
    scopes: set[str], members: list[Member]
) -> None:
    counts = Counter(assignment(scopes, members).values())
    most = {each.id: each.max_scopes or len(scopes) for each in members}
    assert all(counts[member] <= limit for member, limit in most.items())
    assert counts.total() == min(len(scopes), sum(most.values()))


@given(scopes, limited, st.randoms())
def test_all_members_find_the_same(scopes: set[str], members: list[Member], random: Random) -> None:
    shuffled = list(members)
    random.shuffle(shuffled)
    assert assignment(sorted(scopes), shuffled) == assignment(scopes, members)


@given(scopes, members, names)
def test_a_member_that_joins_or_leaves_moves_few_scopes(
    scopes: set[str], members: list[Member], name: str
) -> None:
    """About a share of them; a few more, since nobody follows more than the share."""
    fewer = [each for each in members if each.name != name]
    moved = _moved(scopes, fewer, [*fewer, Member("new/1", name)]) if fewer else 0
    share = ceil(len(scopes) / (len(fewer) + 1))
    assert moved <= 2 * share + len(scopes) // 3 + 2


def _moved(scopes: set[str], before: Sequence[Member], after: Sequence[Member]) -> int:
    old, new = assignment(scopes, before), assignment(scopes, after)
    return sum(old[scope] != new[scope] for scope in scopes)


@given(scopes, scopes, members)
def test_a_scope_is_only_for_members_that_configure_it(
    both: set[str], more: set[str], members: list[Member]
) -> None:
    """As while a new configuration is rolled out."""
    old, *new = (
        Member(each.id, each.name, scopes=frozenset(both | more if at else both))
        for at, each in enumerate(members)
    )
    found = assignment(both | more, [old, *new])
    assert not {scope for scope, member in found.items() if member == old.id} & (more - both)
    assert found.keys() == (both | more if new else both)


def test_a_scope_that_few_members_configure_takes_no_room_from_the_others() -> None:
    one = Member("one/1", "one", scopes=frozenset({"a", "b"}))
    two = Member("two/1", "two", scopes=frozenset({"a"}))
    assert assignment(["a", "b"], [one, two]) == {"a": two.id, "b": one.id}
