"""What a pass touches, against a count of single tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache.core import registry
from hicache.core.actions import Prefill, StateSlots
from hicache.core.errors import CoreBug
from sim.engine.accesses import Access, Accesses
from tests.configs import configured

TOKENS = st.integers(0, 70)


def accesses(window: int, size: int, *more: str) -> Accesses:
    names = ("full", "swa", *more)
    config = configured(size, (99,) * len(names), (0,) * len(names), names, swa_window=window)
    components = [
        registry.load("hicache.core.components", name).component(config) for name in names
    ]
    return Accesses(config, components)


def table(size: int, base: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.arange(70 // size + 2) + base


def prefill(start: int, end: int, size: int, *states: StateSlots) -> Prefill:
    tables = (table(size, 100), table(size, 500))
    return Prefill(1, 7, start, end, tables, (), True, states)


def told(found: list[Access]) -> dict[tuple[str, str], dict[int, int]]:
    """Depths by page, by component and mode."""
    return {
        (one.component, one.mode): dict(
            zip(one.pages.tolist(), one.depths.tolist(), strict=True)
        )
        for one in found
    }  # fmt: skip


@given(st.integers(1, 40), st.sampled_from([1, 3, 4, 16]), TOKENS, TOKENS)
def test_a_window_reads_the_whole_pages_that_its_first_token_attends_to(
    window: int, size: int, one: int, other: int
) -> None:
    start, end = min(one, other), max(one, other)
    made = accesses(window, size)
    whole = start // size
    seen = {token // size for token in range(max(0, start - window + 1), start)}
    read = told(made.first(prefill(start, end, size)))
    assert set(read.get(("swa", "r"), {})) == {500 + page for page in seen if page < whole}
    assert set(read.get(("full", "r"), {})) == {100 + page for page in range(whole)}
    written = told(made.last(prefill(start, end, size)))
    pages = {token // size for token in range(start, end)}
    for name, base in (("full", 100), ("swa", 500)):
        expected = {base + page: min(end, (page + 1) * size) for page in pages}
        assert written.get((name, "w"), {}) == expected


@given(st.sampled_from([4, 8, 20]), st.integers(1, 60), st.integers(1, 30), st.booleans())
def test_decode_of_many_steps_writes_slots_as_single_steps_do(
    interval: int, since: int, steps: int, half: bool
) -> None:
    tracks = (11, -1) if half else (11, 12)
    slots = StateSlots("mamba", -1, 10, tracks, interval, ())
    held = since + steps
    left = {}
    for depth in range(since + 1, held + 1):
        left[10] = depth
        if depth % interval == 0 and tracks[depth // interval % 2] >= 0:
            left[tracks[depth // interval % 2]] = depth
    made = accesses(8, 4, "mamba")
    tables = (table(1, 100), table(1, 500))
    found = [one for one in made.decoded(tables, (slots,), since, held, "decode") if one.state]
    assert (found[0].mode, found[0].pages.tolist(), found[0].depths.tolist()) == (
        "r",
        [10],
        [since],
    )
    final = {}
    for one in found[1:]:
        assert one.mode == "w"
        final[int(one.pages[0])] = int(one.depths[0])
    assert final == left


def test_a_state_is_copied_before_the_pass_and_written_after_it() -> None:
    slots = StateSlots("mamba", 3, 10, (11, 12), 4, ((12, 11), (20, 12)))
    made = accesses(8, 4, "mamba")
    states = [one for one in made.first(prefill(8, 22, 4, slots)) if one.state]
    assert [(one.mode, one.pages[0], one.depths[0]) for one in states] == [
        ("r", 3, 8),
        ("w", 10, 8),
    ]
    states = [one for one in made.last(prefill(8, 22, 4, slots)) if one.state]
    assert [(one.mode, one.pages[0], one.depths[0]) for one in states] == [
        ("w", 10, 22),
        ("w", 11, 12),
        ("w", 12, 20),
    ]
    own = slots._replace(source=-1, checkpoints=())
    states = [one for one in made.first(prefill(8, 22, 4, own)) if one.state]
    assert [(one.mode, one.pages[0], one.depths[0]) for one in states] == [("r", 10, 8)]
    assert not [one for one in made.first(prefill(0, 22, 4, own)) if one.state]


def test_impossible_accesses_are_core_bugs() -> None:
    made = accesses(8, 4, "mamba")
    good = prefill(8, 16, 4)
    holes = (good.tables[0], np.where(np.arange(len(good.tables[1])) == 3, -1, good.tables[1]))
    with pytest.raises(
        CoreBug, match=r"to token 16: expected pages 2 to 3 of swa, found \[502, -1\]"
    ):
        made.last(good._replace(tables=holes))
    slots = StateSlots("mamba", -1, 10, (11, 12), 4, ((8, 11),))
    with pytest.raises(CoreBug, match="a checkpoint at 8, outside of the pass"):
        made.last(prefill(8, 16, 4, slots))
    with pytest.raises(CoreBug, match="expected a slot, found none"):
        made.first(prefill(8, 16, 4, slots._replace(working=-1)))
