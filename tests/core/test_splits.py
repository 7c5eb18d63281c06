"""A split leaves each fact about a node to both halves or divides it. None may be forgotten."""

import pytest

from hicache.core.node import Node
from hicache.core.state import enqueue
from hicache.core.tree import split
from hicache.core.types import MANY_ROWS, kept_rows

from .rig import Rig, key

INHERITED = {
    *("hits", "priority", "inserted", "last_use", "host_refused"),
    *("store_failures", "store_place", "stored_since"),
}


def remembers(holder: Node, names: set[str]) -> None:
    """Gives each of these facts a value that no other has."""
    for number, name in enumerate(sorted(names), start=100):
        before = getattr(holder, name)
        setattr(holder, name, [number] * len(before) if isinstance(before, list) else number)


def alike(upper: Node, lower: Node, names: set[str]) -> None:
    for name in names:
        item, other = getattr(upper, name), getattr(lower, name)
        assert item == other, name
        assert not isinstance(item, list) or item is not other, f"{name} belongs to both halves"


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_split_forgets_nothing(at: int) -> None:
    rig = Rig(16, 16, storage=True)
    rig.run(1, "abcd")
    state = rig.core._state
    [node] = state.root.children.values()
    enqueue(state, node)
    remembers(node, INHERITED - {"store_place", "stored_since"})
    upper = split(state, node, at)
    alike(upper, node, INHERITED)
    assert upper.key + node.key == key("abcd").raw
    assert (upper.end_page, node.end_page) == (at, 4)


@pytest.mark.parametrize(
    ("start", "stop", "shared"), [(0, 4, True), (1, 3, True), (3, 4, False), (0, 0, False)]
)
def test_a_view_keeps_at_most_twice_its_rows_in_memory(start: int, stop: int, shared: bool) -> None:
    raw = bytes(range(256)) * (MANY_ROWS // 64)
    begin, end = start * MANY_ROWS, stop * MANY_ROWS
    for rows in (raw, memoryview(raw)):
        result = kept_rows(rows, begin, end)
        assert result == raw[begin:end]
        assert isinstance(result, memoryview) is shared
    assert isinstance(kept_rows(kept_rows(raw, 0, len(raw)), 0, MANY_ROWS), bytes)
    assert isinstance(kept_rows(raw[:MANY_ROWS], 0, MANY_ROWS - 8), bytes)
    half = memoryview(raw)[: 2 * MANY_ROWS]  # keeps all of `raw`
    assert isinstance(kept_rows(half, 0, 3 * MANY_ROWS // 2), bytes)
