"""Every component in hicache/core/components: its incremental form equals its definition."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache.core import components
from hicache.core.components.base import Component

NAMES = [module.name for module in iter_modules(components.__path__) if module.name != "base"]
PATHS = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8)


def make(name: str) -> Component:
    return import_module(f"hicache.core.components.{name}").component()  # type: ignore[no-any-return]


def test_the_backbone_is_there() -> None:
    assert "full" in NAMES


@pytest.mark.parametrize("name", NAMES)
@given(path=PATHS)
def test_walking_down_a_path_equals_the_definition(name: str, path: list[tuple[int, bool]]) -> None:
    component = make(name)
    walk = component.start
    for depth, (span, held) in enumerate(path, 1):
        walk = component.advance(walk, span, held)
        needed = component.required([pages for pages, _ in path[:depth]])
        assert component.valid(walk) == all(path[index][1] for index in needed)


@pytest.mark.parametrize("name", NAMES)
@given(span=st.integers(2, 9), data=st.data())
def test_a_split_loses_no_page(name: str, span: int, data: st.DataObject) -> None:
    component = make(name)
    pages = np.arange(component.pages_for(span), dtype=np.int64)
    halves = component.split(pages, data.draw(st.integers(1, span - 1)))
    kept = [page for half in halves if half is not None for page in half.tolist()]
    assert kept == pages.tolist()
