"""Why an engine and the simulator count different hits for a request.

Each cause is a change of the simulation, or a fact of the request. A cause explains a difference if
the changed simulation counts for this request what the engine counted; where none does, the
difference is not explained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...formats.base import Paged
from .runs import Limits, Predicted

UNEXPLAINED = "not explained"
Again = Callable[[Limits], Predicted]


@dataclass(frozen=True, slots=True)
class Difference:
    """One request. engine, simulator: the tokens that hit. cause: of `causes`."""

    request: int
    line: int
    input_tokens: int
    engine: int
    simulator: int
    cause: str


def differences(
    paged: Paged,
    lines: Sequence[int],
    limits: Limits,
    hits: Sequence[int],
    said: Sequence[int],
    again: Again,
) -> list[Difference]:
    """The requests that differ, with the first cause that explains each. lines: of the file. again:
    the simulation with other limits."""
    apart = [place for place, pair in enumerate(zip(hits, said, strict=True)) if len({*pair}) > 1]
    causes = dict.fromkeys(apart, UNEXPLAINED)
    for cause, other in _changes(limits) if apart else ():
        left = [place for place in apart if causes[place] == UNEXPLAINED]
        if not left:
            break
        found = again(other).hits
        causes |= {place: cause for place in left if found[place] == hits[place]}
    jobs = paged.jobs
    return [
        Difference(
            place, lines[place], jobs[place].input_length, hits[place], said[place], causes[place]
        )
        for place in apart
    ]


def _changes(limits: Limits) -> Iterator[tuple[str, Limits]]:
    """The causes, and the limits of the simulation in which each is at work."""
    if not limits.one_pool:
        yield TWICE, replace(limits, one_pool=True)
    if limits.at_once > 1:
        yield PASSES, replace(limits, ahead=not limits.ahead)
        for other in (limits.at_once - 1, limits.at_once + 1):
            yield PASSES, replace(limits, at_once=other)


TWICE = "kept twice"
PASSES = "order of passes"
WORDS = {
    TWICE: "a prompt of whole blocks came again: the engine computes its last block again and "
    "keeps the old one beside it until it is evicted, so another block has gone before",
    PASSES: "requests under way at once were composed into other passes, so a block was there, or "
    "gone, when another request asked for it",
    UNEXPLAINED: "no change of the simulation counts what the engine counted",
}
