"""Every component in hicache/core/components: matching by its window equals its definition.

Each is made over the corners of its settings: windows of one page to eight and no multiple of a
page, and a page larger than the window. A component that has no window ignores it.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache import registry
from hicache.core.actions import Matched
from hicache.core.components import Component, Full, known, settings_for
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import Arrived, MatchWanted
from hicache.core.plugins import Shape
from hicache.core.tree import attach, label_of, new_child
from hicache.core.types import Key, Pages, Tier
from invariants.differential import DifferentialChecker
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import sample_config

ROOT = Path(__file__).resolve().parents[2]
NAMES = known()
BACKBONE = NAMES[0]
PAGES = 80  # more than the longest path
PATHS = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8)
# (page size, window in tokens): one page, eight, no multiple, a page larger than the window.
SETTINGS = [
    *((1, window) for window in (1, 5, 8)),
    *((4, window) for window in (1, 4, 5, 8, 10, 32)),
    *((64, window) for window in (48, 64, 65, 100, 512)),
]


def config_made(name: str, page_size: int = 4, window: int = 8, interval: int = 0) -> Config:
    names = (name,) if name == BACKBONE else (BACKBONE, name)
    settings = settings_for(names, Shape(window, interval))
    sizes = (PAGES,) * len(names)
    return Config(page_size, sizes, (0,) * len(names), components=names, settings=settings)


def make(name: str, page_size: int = 4, window: int = 8, interval: int = 0) -> Component:
    config = config_made(name, page_size, window, interval)
    made: Component = registry.load(registry.COMPONENTS, name)(config)
    return made


def matched(config: Config, path: list[tuple[int, bool]]) -> int:
    """How many nodes of a path, each of so many pages and held or not, a request matches."""
    core = Core(config)
    state, stride = core._state, config.page_size * 8
    rows = np.arange(sum(span for span, _ in path) * config.page_size, dtype="<i8").tobytes()
    key = Key(rows, stride)
    core.handle(Arrived(0, key, key.pages * config.page_size, key.pages))
    last, ends = len(state.components) - 1, [0]
    node = state.root
    for span, kept in path:
        start, end = ends[-1], ends[-1] + span
        first = rows[start * stride : (start + 1) * stride]
        label = first if start else label_of("", first)
        node = new_child(state, node, rows[start * stride : end * stride], label)
        for index, component in enumerate(state.components):
            if index != last or kept:
                count = span if component.positional else 1
                taken = state.pools[Tier.DEVICE][index].take(count, 1)
                attach(state, node, Tier.DEVICE, index, taken)
        ends.append(end)
    (result,) = core.handle(MatchWanted(0))
    assert isinstance(result, Matched)
    assert result.host_pages == 0
    assert result.depths[last] == result.device_pages
    return ends.index(result.device_pages)


@pytest.mark.parametrize("name", NAMES)
@given(path=PATHS, setting=st.sampled_from(SETTINGS))
def test_a_match_is_the_deepest_node_that_has_all_it_requires(
    name: str, path: list[tuple[int, bool]], setting: tuple[int, int]
) -> None:
    component = make(name, *setting)
    valid = [
        depth
        for depth in range(len(path) + 1)
        if all(path[index][1] for index in component.required([pages for pages, _ in path[:depth]]))
    ]
    assert valid[0] == 0, "nothing is required of the empty prefix"
    assert matched(config_made(name, *setting), path) == valid[-1]


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


class Chunked(Full):
    """Chunked local attention in chunks of six tokens, of which all pages are kept."""

    name = "chunked"
    residency = "window"
    window_tokens = 6

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.window_pages = -(-6 // config.page_size)
        self.least_pages = self.window_pages + 1


class Torn(Chunked):
    """A split loses the pages of its upper half."""

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return None, super().split(pages, at)[1]


@pytest.mark.parametrize(("made", "fails"), [(Chunked, False), (Torn, True)])
def test_a_component_from_outside_is_drawn_checked_and_judged_by_what_it_declares(
    made: type[Chunked], fails: bool
) -> None:
    registry.add(registry.COMPONENTS, "chunked", made)
    try:
        assert known().index("full") < known().index("chunked") < known().index("mamba")
        config = Config(1, (8, 8), (0, 0), ("full", "chunked"))
        assert DifferentialChecker(config).unspecified == ""
        failures = []
        for seed in range(8):
            sample = sample_config(seed, ("full", "chunked"))
            outcome = play.generate(sample, 60)
            failures += [outcome.failure] if outcome.failure else []
        assert bool(failures) == fails, failures[0].text
    finally:
        registry.remove(registry.COMPONENTS, "chunked")
