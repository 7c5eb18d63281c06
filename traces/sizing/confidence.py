"""How sure an answer is: replays with other arrivals, times of passes and loads, and how far
something must move before another candidate is the answer.

More work never helps, so the answer changes upward only where it no longer serves itself, and
downward only where something cheaper does. Does not search the answer (see trials).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import ceil, sqrt

from . import plan
from .candidates import Candidate, Machines
from .replays import Document, kept_of, pass_error
from .trials import Moved, Trials

LESS, MORE = Fraction(4, 5), Fraction(5, 4)  # of the load
PASSES, LOAD, DRAW, SAMPLE = "passes", "load", "draw", "sample"
SHARING = ("sharing none", "sharing most")
_MOST = 3  # times as much, before a flip is looked for no further
_MOST_RIVALS = 2  # cheaper ones that are tried with less to do
_NEAR = 0.02  # less than asked: what a candidate kept that chance might let serve
_MOST_ROUNDS = 6
_FEW = 4  # replays, before a bracket is halved instead
_STEP = 1.4
_LEAST = Fraction(1, 100)  # of the times of passes
_CLEARLY = 1.5  # times the odds
_WITHIN = 1.05  # the ends of a bracket that is narrow enough
_DIGITS = 3  # of a factor, so that it can be typed


@dataclass(frozen=True, slots=True)
class Flip:
    """Where the answer changes when there is more to do. what: `passes`, whose times grow, or
    `load`. holds: the largest factor at which it was seen to hold. at: the smallest at which it
    does not; None if none was found. to: one that serves then; None if the one that was tried does
    not."""

    what: str
    holds: Fraction
    at: Fraction | None
    to: Candidate | None


@dataclass(frozen=True, slots=True)
class Tried:
    """One replay of it. what: `draw`, `passes`, `load`, or one of SHARING. factor: of the times of
    passes or the load; otherwise 1."""

    what: str
    factor: Fraction
    candidate: Candidate
    serves: bool
    found: Document


@dataclass(slots=True)
class Sure:
    """error: of a pass, and whether it was judged for this accelerator and engine. work: see
    how_sure. rivals: what may be the answer within the errors, and why: `draw`, `passes` or
    `sample`."""

    error: float = 0.0
    judged: bool = False
    work: float = 0.0
    tried: list[Tried] = field(default_factory=list)
    flips: list[Flip] = field(default_factory=list)
    rivals: list[tuple[Candidate, str]] = field(default_factory=list)


def how_sure(
    answer: int,
    found: Document,
    documents: Sequence[Document | None],
    trials: Trials,
    machines: Machines,
    seeds: Sequence[int],
    is_log: bool = False,
    work: float = 0.0,
) -> Sure:
    """answer: the cheapest that serves. found: its document. documents: of every candidate, None
    where it was not replayed. seeds: of the other draws. is_log: whether which tokens prompts share
    was assumed. work: the part of the work that the error of a sampled trace may add or spare, as
    passes that take so much longer or shorter would."""
    error, judged = pass_error(found)
    work = ceil(100 * work) / 100
    sure = Sure(error, judged, work)
    part = Fraction(f"{error:.2f}") + Fraction(f"{work:.2f}")
    rivals = _rivals(answer, documents, trials, machines)
    harder: list[tuple[str, Fraction, Moved]] = [
        *((DRAW, Fraction(1), partial(plan.drawn, seed=seed)) for seed in seeds),
        (PASSES, 1 + part, _slower(1 + part)),
        (LOAD, MORE, _more(MORE)),
    ]
    less = max(_LEAST, 1 - part)
    easier = [(PASSES, less, _slower(less)), (LOAD, LESS, _more(LESS))]
    assumed: list[tuple[str, Fraction, Moved]] = [
        (what, Fraction(1), partial(plan.sharing, how=what.split()[-1])) for what in SHARING
    ]
    of_answer = [*harder, *(assumed if is_log else [])]
    wanted = [(what, factor, answer, moved) for what, factor, moved in of_answer]
    wanted += [(what, factor, one, moved) for one in rivals for what, factor, moved in easier]
    wanted += [
        (what, factor, one, moved)
        for one in rivals
        if kept_of(documents[one]) > float(trials.attain) - _NEAR
        for what, factor, moved in harder
        if what == DRAW
    ]
    replayed = trials.documents([(one, moved) for _, _, one, moved in wanted])
    for (what, factor, one, _), document in zip(wanted, replayed, strict=True):
        if document is not None:
            serves = trials.serves(document)
            candidate = trials.candidates[one]
            sure.tried.append(Tried(what, factor, candidate, serves, document))
            if one != answer and serves and what != LOAD:
                sure.rivals.append((candidate, what))
    name = trials.candidates[answer]
    seen = {
        what: {Fraction(1): _Seen(True, kept_of(found))}
        | {
            one.factor: _Seen(one.serves, kept_of(one.found))
            for one in sure.tried
            if one.what == what and one.candidate is name
        }
        for what in (PASSES, LOAD)
    }
    _narrow(seen, answer, trials)
    sure.flips = [] if trials.over else _flips(seen, answer, trials, machines)
    for flip in sure.flips:
        if flip.what == PASSES and flip.at is not None and flip.at <= 1 + part and flip.to:
            sure.rivals.append((flip.to, PASSES))
    lost = [one for one in sure.tried if one.what == DRAW and one.factor == 1]
    if any(one.candidate is trials.candidates[answer] and not one.serves for one in lost):
        sure.rivals += [(flip.to, DRAW) for flip in sure.flips[:1] if flip.to]
    sure.rivals = list(dict.fromkeys(sure.rivals))
    return sure


def _slower(factor: Fraction) -> Moved:
    return partial(plan.slower_passes, factor=factor)


def _more(factor: Fraction) -> Moved:
    return partial(plan.more_load, factor=factor)


def _rivals(
    answer: int, documents: Sequence[Document | None], trials: Trials, machines: Machines
) -> list[int]:
    """The strongest of those that are cheaper and fail, the nearest to serving first."""
    tried = [
        one
        for one in range(answer)
        if documents[one] is not None and not trials.serves(documents[one])
    ]
    known = trials.candidates
    strongest = [
        one
        for one in tried
        if not any(other != one and machines.weaker(known[one], known[other]) for other in tried)
    ]
    return sorted(strongest, key=lambda one: -kept_of(documents[one]))[:_MOST_RIVALS]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A replay with a factor. kept: about which part of the requests kept the limits."""

    serves: bool
    kept: float


def _narrow(seen: Mapping[str, dict[Fraction, _Seen]], answer: int, trials: Trials) -> None:
    """Tries the answer with more to do until it is known to 5 % from where it does not serve."""
    for _ in range(_MOST_ROUNDS):
        wanted = [
            (what, factor)
            for what, known in seen.items()
            for factor in factors_to_try(known, trials.attain)
        ]
        if not wanted or trials.over:
            return
        found = trials.documents([(answer, _MOVERS[what](factor)) for what, factor in wanted])
        for (what, factor), document in zip(wanted, found, strict=True):
            if document is not None:
                seen[what][factor] = _Seen(trials.serves(document), kept_of(document))


def factors_to_try(known: Mapping[Fraction, _Seen], attain: Fraction) -> list[Fraction]:
    """The next factors: on both sides of where a line through what is known meets the part that is
    asked for. None if that is known to 5 %, or lies beyond what is looked at."""
    low, high = _ends(known)
    if low >= _MOST or (high is not None and high <= low * Fraction(_WITHIN)):
        return []
    least = low * Fraction(101, 100)
    most = Fraction(_MOST) if high is None else high * Fraction(100, 101)
    other = high if high is not None else max((one for one in known if one < low), default=None)
    at = float(low) * _STEP
    if other is not None:
        slope = (known[other].kept - known[low].kept) / float(other - low)
        if slope < 0:
            at = float(low) + (float(attain) - known[low].kept) / slope
    if len(known) > _FEW and high is not None:
        at = sqrt(low * high)
    near = sqrt(_WITHIN) * 0.999
    both = (min(max(float(least), one), float(most)) for one in (at / near, at * near))
    found = {Fraction(f"{one:.{_DIGITS}g}") for one in both}
    return sorted(one for one in found if one not in known and low < one and one != high)


def _ends(known: Mapping[Fraction, _Seen]) -> tuple[Fraction, Fraction | None]:
    """The largest factor that is served below all that are not, and the smallest of these."""
    high = min((factor for factor, one in known.items() if not one.serves), default=None)
    return max(
        factor for factor, one in known.items() if one.serves and (high is None or factor < high)
    ), high


def _flips(
    seen: Mapping[str, Mapping[Fraction, _Seen]], answer: int, trials: Trials, machines: Machines
) -> list[Flip]:
    """Where the answer no longer serves, and a candidate that does: the cheapest that is clearly
    likelier to serve than the answer."""
    known = trials.candidates
    odds = machines.likely(known[answer]) * _CLEARLY
    stronger = [
        one
        for one in range(answer + 1, len(known))
        if machines.likely(known[one]) >= odds and not trials.cannot(known[one])
    ][:1]
    ends = {what: _ends(one) for what, one in seen.items()}
    wanted = [(what, at, one) for what, (_, at) in ends.items() if at for one in stronger]
    found = trials.documents([(one, _MOVERS[what](at)) for what, at, one in wanted])
    to = {
        what: known[one]
        for (what, _, one), document in zip(wanted, found, strict=True)
        if trials.serves(document)
    }
    return [Flip(what, holds, at, to.get(what)) for what, (holds, at) in ends.items()]


_MOVERS = {PASSES: _slower, LOAD: _more}
