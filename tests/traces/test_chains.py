"""Numbers of chained ids against a dictionary of prefixes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from traces.formats._jobs import Chains


@given(
    st.lists(st.lists(st.integers(-2, 7), max_size=6), max_size=20),
    st.integers(-3, 3),
    st.booleans(),
)
def test_equal_numbers_are_equal_ids_after_equal_prefixes(
    paths: list[list[int]], added: int, together: bool
) -> None:
    """Numbers count on in the order of first use; ids are dense, far apart, or after several
    prefixes."""
    chains = Chains()
    known: dict[tuple[int, int], int] = {}
    for path in paths:
        before, expected = -1, []
        for id_ in path:
            before = known.setdefault((before, id_ + added), len(known))
            expected.append(before)
        if together:
            assert chains.numbers(-1, path, added) == expected
        else:
            before, found = -1, []
            for id_ in path:
                before = chains.number(before, id_ + added)
                found.append(before)
            assert found == expected
    assert len(chains) == len(known)
