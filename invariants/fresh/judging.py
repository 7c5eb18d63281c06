"""Judges a drawn bug by the fuzzer: whether any sequence fails with it.

First the tapes of the corpus, then the contracts that need no sequence (legal configurations, keys,
refused events), then sequences that are drawn for this bug, until one fails or the caller's time is
over. Of a tape only the operations are played; what the core once decided on it judges nothing.
Whatever judges a sequence in the fuzzer judges it here: checks, contents, asserts of the core,
progress, the end of the sequence. Before a failure counts, the same sequence is played without the
bug, and must not fail.

A bug that never ends is found by counting loop iterations of the core; the caller may set a limit
of time, too. Lives here: the hunt. Does not use clocks or processes (see
traces/mutants/fresh_work), draw bugs (see drawing), or say what a survivor does (see triage).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from invariants.base import CRASH, INVARIANT, LIVENESS

from ..fuzz.draws import Draws
from ..fuzz.generate import weights_of
from ..fuzz.ops.base import load
from ..fuzz.play import Failure, generate, replay
from ..fuzz.swarm import Swarm, draw_swarm
from ..fuzz.tapes.tape import Tape
from ..mutants import contracts
from ..mutants.sources import Endless, Guard, Steps, limited, unguarded
from .planting import Bug, planted

ENDLESS = "ENDLESS"
OPERATIONS = 120
MOST_STEPS = 2_000_000  # of one sequence; the longest of 300 has 37,444
OPS = load()
WEIGHTS = weights_of(OPS)
_SEEDS = 1 << 32

Play = Callable[[], Failure | None]


@dataclass(frozen=True)
class Verdict:
    """What became of a bug. code, by: of the failure, 0 and "" if it survived. on: the sequence
    that failed, a tape's or a drawn one's seed. sequences: how many were played. not_counted:
    failures that the same sequence has without the bug.
    """

    code: int
    by: str
    sequences: int
    on: str = ""
    not_counted: int = 0

    @property
    def killed(self) -> bool:
        return self.code != 0


def seeds(seed: int, number: int) -> Iterator[int]:
    """The seeds of the sequences for one bug of a set."""
    first = Draws(seed, "fresh hunt", number).below(_SEEDS)
    return iter(range(first, first + _SEEDS))


def hunt(
    bug: Bug,
    tapes: Iterable[Tape],
    drawn: Iterable[int],
    more: Callable[[], bool] = lambda: True,
    guard: Guard = unguarded,
) -> Verdict:
    """Plays sequences until one fails or `more` returns False. drawn: seeds."""
    count = not_counted = 0
    for on, play in _plays(bug, tapes, drawn):
        if count and not more():
            break
        count += 1
        with planted(bug):
            failed = _failure(play, guard)
        if failed is None:
            continue
        if _failure(play, guard) is None:
            return Verdict(*failed, count, on, not_counted)
        not_counted += 1
    return Verdict(0, "", count, not_counted=not_counted)


def _plays(bug: Bug, tapes: Iterable[Tape], drawn: Iterable[int]) -> Iterator[tuple[str, Play]]:
    for tape in tapes:
        yield f"tape {tape.seed}", partial(_replayed, tape)
    yield "contracts", partial(_contracts, bug.module)
    for seed in drawn:
        yield f"seed {seed}", partial(_drawn, draw_swarm(seed, WEIGHTS), seed)


def _replayed(tape: Tape) -> Failure | None:
    return replay(tape, OPS).failure


def _contracts(module: str) -> Failure | None:
    name = contracts.broken(module)
    return Failure(INVARIANT, f"contract {name}", "", 0) if name else None


def _drawn(swarm: Swarm, seed: int) -> Failure | None:
    return generate(swarm, OPS, seed, OPERATIONS).failure


def _failure(play: Play, guard: Guard) -> tuple[int, str] | None:
    """The code and kind of the failure of a sequence, or None."""
    try:
        with guard(), limited(Steps(MOST_STEPS)):
            failure = play()
    except Endless:
        return LIVENESS, ENDLESS
    except Exception as error:  # before the first entry, which play does not judge
        return CRASH, f"{type(error).__name__} before the first event"
    return None if failure is None else (failure.code, failure.kind)
