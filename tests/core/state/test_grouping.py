"""Groups of objects: the index says what the last word about each member says."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.state.grouping import Groups

PUTS = st.lists(st.tuples(st.integers(0, 5), st.none() | st.sampled_from("abc")))


@given(PUTS)
def test_a_member_is_in_the_group_that_it_was_put_into_last(puts: list[tuple[int, str | None]]) -> None:
    """Of any number of words about members the last about each counts; a group without members is none."""
    groups: Groups[int, str] = Groups()
    last: dict[int, str | None] = {}
    for member, group in puts:
        assert groups.put(member, group) == last.get(member)
        last[member] = group
    of = {group: {member for member, its in last.items() if its == group} for group in "abc"}
    assert {group: set(groups.of(group)) for group in "abc"} == of
    assert set(groups.groups()) == {group for group, members in of.items() if members}
    assert set(groups.members()) == {member for member, group in last.items() if group is not None}
    assert all(groups.group_of(member) == group for member, group in last.items())
