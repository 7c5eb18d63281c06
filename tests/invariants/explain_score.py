"""How often `hicache explain` names the function that a planted bug replaces: the measurement.

    python -m tests.invariants.explain_score            # every planted bug
    python -m tests.invariants.explain_score NAME ...   # some

For each bug: sequences are drawn until one fails, its tape is explained as it is, and the printed
entries of "Where to look" are read. The guilty function is the one that the bug replaces (any of
them, if it replaces several); its replacement counts as the same function. An entry *names* a
function if it is the entry's own; the second figure also counts the callers that the entry prints.

Lives here: hunting, counting and printing. Must not live here: any part of the ranking, which knows
nothing of planted bugs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import takewhile
from time import process_time
from typing import NamedTuple

from invariants.explain.explain import Place
from invariants.explain.ranking import where_to_look
from invariants.explain.recorder import recorded
from invariants.fuzz.ops.base import load
from invariants.fuzz.tapes.tape import Tape
from invariants.planted import _kill as kill
from invariants.planted.base import names, patched, planted
from invariants.source_lines import SourceLine, function_of

SECONDS, FIRST = 20.0, 2


class Score(NamedTuple):
    """The ranks of the guilty function, from 1; 0 if no printed entry names it. with_callers: the
    same, if callers that an entry prints count, too.
    """

    name: str
    rank: int
    with_callers: int


def main(chosen: Sequence[str]) -> None:
    scores = []
    for name in chosen or names():
        tape = found(name)
        if tape is None:
            print(f"{name}: not found in {SECONDS:.0f} s", flush=True)
            continue
        scores.append(score(name, tape))
        print(f"{name}: {scores[-1].rank or '-'}, {scores[-1].with_callers or '-'}", flush=True)
    for words, ranks in (
        ("as the function of an entry", [one.rank for one in scores]),
        ("or as one of its callers", [one.with_callers for one in scores]),
    ):
        first = sum(0 < rank <= FIRST for rank in ranks)
        print(
            f"named first or second {words}: {first} of {len(scores)} "
            f"({100 * first / max(1, len(scores)):.0f} %)"
        )


def found(name: str) -> Tape | None:
    """A tape that fails with the bug planted."""
    began = process_time()
    seeds = takewhile(lambda _: process_time() - began < SECONDS, range(1, 1_000_000))
    return kill.hunt(name, seeds).tape


def score(name: str, tape: Tape) -> Score:
    """Explains the tape with the bug planted."""
    ops, guilty = load(), set(patched(name))
    with planted(name):
        entries = where_to_look(recorded(tape, ops), ops)
        return Score(
            name,
            _rank([[place.source_line] for place in entries], guilty),
            _rank([_lines(place) for place in entries], guilty),
        )


def _lines(place: Place) -> list[SourceLine]:
    return [place.source_line, *place.via]


def _rank(entries: Sequence[Sequence[SourceLine]], guilty: set[SourceLine]) -> int:
    ranks = (
        at
        for at, lines in enumerate(entries, 1)
        if any(function_of(line) in guilty for line in lines)
    )
    return next(ranks, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
