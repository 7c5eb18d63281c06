"""What a pin on host holds ends at a boundary of every component: `deepest_on`, by trying all."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest

from hicache.core.tree import deepest_on
from hicache.core.types import Tier

_LENGTHS = (2, 1, 1, 1)  # pages of the nodes of a path
_WINDOWS = (1 << 40, 2, 1)  # full, swa, mamba


def _valid(path: list[SimpleNamespace], depth: int) -> bool:
    """Whether every component has what the boundary after so many nodes requires on host."""
    end = path[depth - 1].end_page if depth else 0
    return all(
        node.pages[Tier.HOST][index] is not None
        for index, window in enumerate(_WINDOWS)
        for node in path[:depth]
        if end - node.end_page < window
    )


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_the_deepest_boundary_on_host_is_valid_for_every_component(lacking: int) -> None:
    """Every path of four nodes that lack up to so many copies on host."""
    state = SimpleNamespace(components=[SimpleNamespace(window_pages=one) for one in _WINDOWS])
    for has in product((True, False), repeat=2 * len(_LENGTHS)):
        if has.count(False) != lacking:
            continue
        path, end = [], 0
        for place, length in enumerate(_LENGTHS):
            end += length
            swa, mamba = has[2 * place : 2 * place + 2]
            host = [0, 0 if swa else None, 0 if mamba else None]
            path.append(SimpleNamespace(end_page=end, pages=[[None] * 3, host]))
        best = max(depth for depth in range(len(path) + 1) if _valid(path, depth))
        assert deepest_on(state, path, Tier.HOST) == best, has  # type: ignore[arg-type]
