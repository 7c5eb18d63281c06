"""Nothing that the fuzzer remembers comes from code in which a bug may be planted.

What a cache keeps outlives the planting: the sequence that is then played without the bug would be
judged by the bug's answer. So no function that keeps results may run such code, and nothing in a
module or a class may be other than before when a bug was planted and removed.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper, cache
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from hicache.core.config import Config
from hicache.core.errors import CallerError
from invariants.fresh import judging
from invariants.fresh.drawing import draw
from invariants.fresh.functions import RUNTIME
from invariants.fresh.planting import Bug, planted
from invariants.fuzz.play import replay
from invariants.mutants import sources
from traces.mutants.stored import corpus_tapes

OURS = ("hicache", "sim", "invariants", "traces")
SEQUENCES = 3
TAPES = 3


def plantable() -> set[CodeType]:
    modules = (*sources.modules(), *RUNTIME)
    return {one.__code__ for module in modules for one in sources.functions(module).values()}


def keepers() -> list[Any]:
    """Every function of this process whose results are kept."""
    return [one for one in gc.get_objects() if type(one) is _lru_cache_wrapper]


def kept_from_planted_code(play: Callable[[], object]) -> set[str]:
    """The keepers within which code runs that may have a bug."""
    wanted = plantable()
    known = {
        one.__wrapped__.__code__: f"{one.__module__}.{one.__qualname__}"
        for one in keepers()
        if isinstance(one.__wrapped__, FunctionType)
    }
    within: list[str] = []
    found: set[str] = set()

    def on_call(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code in known:
            within.append(known[code])
        elif event == "call" and within and code in wanted:
            found.add(within[-1])
        elif event == "return" and code in known:
            within.pop()

    sys.setprofile(on_call)
    try:
        play()
    finally:
        sys.setprofile(None)
    return found


def hunted(bug: Bug) -> None:
    """Plays what a hunt plays, failures or not."""
    tapes = sorted(corpus_tapes(), key=lambda tape: len(tape.entries))[:TAPES]
    drawn = range(bug.number, bug.number + SEQUENCES)
    for _, play in judging._plays(bug, tapes, drawn):
        judging._failure(play, judging.unguarded)


@pytest.mark.one_in(8)
def test_no_keeper_runs_code_that_may_have_a_bug() -> None:
    [bug] = draw(1, 1)
    hunted(bug)  # loads what is loaded when it is first used, with its keepers
    for one in keepers():
        if str(one.__module__).startswith(("invariants.fuzz", "invariants.books")):
            one.cache_clear()
    assert not kept_from_planted_code(lambda: hunted(bug))


def test_a_keeper_is_seen() -> None:
    @cache
    def kept(pages: int) -> Config:
        return Config(1, (pages,))

    assert kept_from_planted_code(lambda: kept(7)) == {f"{__name__}.{kept.__qualname__}"}


# -- state


def held() -> Iterator[tuple[str, int]]:
    """The size of everything that a module or a class of this project has for all its users."""
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] not in OURS:
            continue
        for key, value in vars(module).items():
            yield from _held(f"{name}.{key}", value, name)


def _held(name: str, value: Any, module: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict | list | set | bytearray):
        yield name, len(value)
    elif isinstance(value, type) and value.__module__ == module:
        for key, inner in list(vars(value).items()):
            yield from _held(f"{name}.{key}", inner, module)
    elif isinstance(value, FunctionType) and value.__module__ == module:
        for place, default in enumerate(value.__defaults__ or ()):
            yield from _held(f"{name} default {place}", default, module)


@pytest.mark.one_in(8)
def test_a_hunt_leaves_modules_and_classes_as_they_were() -> None:
    bugs = list(draw(2, 3))
    hunted(bugs[0])  # loads what is loaded when it is first used
    before = dict(held())
    for bug in bugs:
        with sources.counted(), planted(bug):
            hunted(bug)
    assert dict(held()) == before


# -- the bug of which it came


def test_a_legal_configuration_is_legal_again_when_the_bug_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tape = next(corpus_tapes())

    def refuse(*_: object) -> None:
        raise CallerError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("hicache.core.core.Core.__init__", refuse)
        with pytest.raises(CallerError):
            replay(tape, judging.OPS)
    assert replay(tape, judging.OPS).failure is None
