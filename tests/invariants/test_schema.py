"""Arguments that no operation has: refused with one line before anything is played. Drawn
configurations: each size, down to the smallest legal pools; and every named state is reached."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from hicache.core import core as core_module
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.files import Spare
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import (
    COMPONENTS,
    POLICIES,
    USUAL,
    draw_config,
    least_device_pages,
    sample_config,
)
from invariants.fuzz.hicache.operations import OPERATIONS as OPS
from invariants.fuzz.hicache.player import FAULTS, STATES
from invariants.fuzz.sequence import Entry, FuzzSequence, check

CONFIG = Config(4, (16,), (16,))
JUNK: tuple[Any, ...] = (
    None, "many", "", -2, -(10**30), 10**30, 1.5, float("nan"), True, [], [[]], [1], [[1, 2, 3]],
    [[0, 0]], [["a", 1]], [[0, 1 << 40]], {}, {"a": 1}, [None], [[2, "full", 1]], [[0, "full", -1]],
)  # fmt: skip


@cache
def drawn() -> dict[str, dict[str, Any]]:
    """Arguments of each operation, as a run drew them."""
    result: dict[str, dict[str, Any]] = {}
    for seed in range(60):
        if len(result) == len(OPS) - 1:
            break
        sample = sample_config(seed)
        for entry in play.generate(sample, 60, "off").sequence.entries:
            result.setdefault(entry.op, entry.args)
    return result | {"several": {"steps": [["quiesce", {}]]}}


def fits(kind: Any, junk: Any) -> bool:
    inner = kind.shape if isinstance(kind, Spare) else kind
    return bool(inner.fits(junk))


def malformed() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, args in drawn().items():
        yield name, {**args, "colour": 1}
        for key, kind in OPS[name].args.items():
            if not isinstance(kind, Spare):
                yield name, {item: kept for item, kept in args.items() if item != key}
            for junk in JUNK:
                if not fits(kind, junk):
                    yield name, {**args, key: junk}


def test_every_operation_was_drawn_and_its_arguments_are_well_made() -> None:
    assert drawn().keys() == OPS.keys()
    for name, args in drawn().items():
        check(FuzzSequence(CONFIG, (Entry(name, args),)), OPS, "sequence", FAULTS)


@pytest.mark.parametrize("name", sorted(OPS))
def test_malformed_arguments_are_refused_in_one_line_before_playing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untouched(self: Core, event: object) -> None:
        raise AssertionError(f"played {event}")

    bad = [args for op, args in malformed() if op == name]
    assert bad
    monkeypatch.setattr(core_module.Core, "handle", untouched)
    for args in bad:
        sequence = FuzzSequence(CONFIG, (Entry("evict", drawn()["evict"]), Entry(name, args)))
        with pytest.raises(CallerError, match=f"^some.jsonl, line 3: {name}: ") as caught:
            play.replay(sequence, name="some.jsonl")
        assert "\n" not in str(caught.value)
        assert ": expected " in str(caught.value)
        assert "found" in str(caught.value)


@pytest.mark.parametrize("name", sorted(OPS))
def test_well_formed_arguments_can_be_played(name: str) -> None:
    """No value that the schema takes crashes the harness, however little it fits."""
    for key, kind in OPS[name].args.items():
        for junk in (*JUNK, 0, 1, 2, "x", ["x"], [7], "\ud800", "a\0b", [[5, 3]]):
            if fits(kind, junk):
                entries = (Entry("arrive", ARRIVAL), Entry(name, {**drawn()[name], key: junk}))
                outcome = play.replay(FuzzSequence(CONFIG, entries))
                assert outcome.failure is None, (name, key, junk, outcome.failure)


ARRIVAL = {"request": 0, "tokens": [[5, 9]], "space": "", "whole": False}


def test_a_crash_is_named_by_the_innermost_function_of_the_core() -> None:
    core, other = ({"__name__": name} for name in ("hicache.core.x", "elsewhere"))
    exec("def fails():\n    raise ValueError", other)
    exec("def decides():\n    fails()", core | {"fails": other["fails"]}, core)
    for name, kind in (("decides", "ValueError in decides"), ("fails", "ValueError in fails")):
        with pytest.raises(ValueError, match=r"^$") as caught:
            (core | other)[name]()
        assert play.failure_of(caught.value, 0).kind == kind


TELLING = (0, 1, 2, 3, 5, 6, 16, 22, 28, 39)  # reach all named states


@pytest.mark.parametrize("components", COMPONENTS, ids="+".join)
def test_the_core_accepts_the_least_pools_and_nothing_smaller(components: tuple[str, ...]) -> None:
    for seed in range(12):
        draws = Draws(seed, "test")
        config = draw_config(draws, components, draws.choice(POLICIES), "lru", USUAL)
        least = least_device_pages(config)
        Core(replace(config, device_pages=least))
        for at, pages in enumerate(least):
            smaller = (*least[:at], pages - 1, *least[at + 1 :])
            with pytest.raises(CallerError, match="expected at least"):
                Core(replace(config, device_pages=smaller))


def test_drawn_sequences_reach_every_named_state() -> None:
    seen: Counter[str] = Counter()
    for seed in (*TELLING, *range(150)):
        outcome = play.generate(sample_config(seed), 120, "off")
        assert outcome.failure is None, outcome.failure
        seen += outcome.player.probes.seen
        if {*STATES} <= {*seen}:
            return
    assert not {*STATES} - {*seen}
