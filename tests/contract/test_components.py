"""Every component in hicache/core/components: its incremental form equals its definition.

Each is made over the corners of its settings: windows of one page to eight and no multiple of a
page, and a page larger than the window. A component that has no window ignores it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache.core import components
from hicache.core.components.base import Component
from hicache.core.config import Config

NAMES = [module.name for module in iter_modules(components.__path__) if module.name != "base"]
PATHS = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8)
# (page size, window in tokens): one page, eight, no multiple, a page larger than the window.
SETTINGS = [
    (1, 1),
    (1, 5),
    (1, 8),
    (4, 1),
    (4, 4),
    (4, 5),
    (4, 8),
    (4, 10),
    (4, 32),
    (64, 48),
    (64, 64),
    (64, 65),
    (64, 100),
    (64, 512),
]


def make(name: str, page_size: int = 4, window: int = 8, interval: int = 0) -> Component:
    names = ("full",) if name == "full" else ("full", name)
    config = Config(
        page_size,
        (64,) * len(names),
        (0,) * len(names),
        components=names,
        swa_window=window if name == "swa" else 0,
        mamba_interval=interval if name == "mamba" else 0,
    )
    return import_module(f"hicache.core.components.{name}").component(config)  # type: ignore[no-any-return]


def test_the_three_components_are_there() -> None:
    assert {"full", "swa", "mamba"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@given(path=PATHS, setting=st.sampled_from(SETTINGS))
def test_walking_down_a_path_equals_the_definition(
    name: str, path: list[tuple[int, bool]], setting: tuple[int, int]
) -> None:
    component = make(name, *setting)
    walk = component.start
    assert component.valid(walk), "nothing is required of the empty prefix"
    for depth, (span, held) in enumerate(path, 1):
        walk = component.advance(walk, span, held)
        needed = component.required([pages for pages, _ in path[:depth]])
        assert component.valid(walk) == all(path[index][1] for index in needed)


@pytest.mark.parametrize("name", NAMES)
@given(path=PATHS, setting=st.sampled_from(SETTINGS))
def test_required_is_what_ends_within_reach(
    name: str, path: list[tuple[int, bool]], setting: tuple[int, int]
) -> None:
    component = make(name, *setting)
    lengths = [span for span, _ in path]
    ends = np.cumsum(lengths).tolist()
    within = [index for index, end in enumerate(ends) if ends[-1] - end <= component.reach]
    assert list(component.required(lengths)) == within


@pytest.mark.parametrize(("page_size", "window"), SETTINGS)
def test_a_window_requires_each_page_that_holds_one_of_its_tokens(
    page_size: int, window: int
) -> None:
    """On nodes of one page: token by token, from the definition of the attention."""
    component = make("swa", page_size, window)
    for pages in range(1, 12):
        length = pages * page_size
        read = {token // page_size for token in range(max(0, length - window), length)}
        assert set(component.required([1] * pages)) == read


def test_a_gap_inside_the_window_is_no_match_however_much_follows_the_last_hole() -> None:
    """E5: live 2, hole 2, live 3 with a window of 4 pages; one more live page completes it."""
    component = make("swa", 1, 4)
    walk = component.start
    for span, held, valid in ((2, True, True), (2, False, False), (3, True, False)):
        walk = component.advance(walk, span, held)
        assert component.valid(walk) == valid
    assert component.valid(component.advance(walk, 1, True))


def test_a_path_shorter_than_the_window_is_valid_only_where_it_is_complete() -> None:
    component = make("swa", 4, 32)
    assert component.valid(component.advance(component.start, 2, True))
    walk = component.advance(component.advance(component.start, 1, False), 2, True)
    assert not component.valid(walk)


@pytest.mark.parametrize("name", NAMES)
@given(span=st.integers(2, 9), data=st.data())
def test_a_split_loses_no_page_and_gives_each_half_what_it_should_hold(
    name: str, span: int, data: st.DataObject
) -> None:
    component = make(name)
    at = data.draw(st.integers(1, span - 1))
    pages = np.arange(component.pages_for(span), dtype=np.int64)
    upper, lower = component.split(pages, at)
    kept = [page for half in (upper, lower) if half is not None for page in half.tolist()]
    assert kept == pages.tolist()
    assert lower is not None
    assert len(lower) == component.pages_for(span - at)
    if component.positional:
        assert upper is not None
        assert len(upper) == component.pages_for(at)
        assert not any(np.shares_memory(half, pages) for half in (upper, lower)), "views keep all"
        assert not upper.flags.writeable
        assert not lower.flags.writeable
    else:
        assert upper is None, "a state is that of the node's end"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_component_says_of_itself_agrees(name: str) -> None:
    component = make(name, 4, 10, 16)
    assert component.name == name
    assert component.reach >= 0
    assert (component.pages_for(7) == 7) == component.positional
    assert 0 <= component.least_slots <= component.slots
    assert bool(component.slots) != component.positional
    assert component.interval % 4 == 0


def test_reach_and_interval_follow_from_the_settings() -> None:
    assert make("full").reach >= 1 << 32, "no path is longer"
    assert make("mamba").reach == 0
    assert [
        make("swa", *setting).reach for setting in ((4, 3), (4, 4), (4, 5), (4, 8), (1, 8))
    ] == [
        0,
        0,
        1,
        1,
        7,
    ]
    assert make("mamba", 4, 8, 0).interval == 4
    assert make("mamba", 4, 8, 24).interval == 24
    assert make("swa").interval == make("full").interval == 4
