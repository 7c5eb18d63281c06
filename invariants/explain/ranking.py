"""Ranks where to look: the functions with the most evidence, each with a line and reasons in words.

Lives here: the weights, the line of a function that is shown, and the reasons. Does not collect
evidence (see suspects).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..fuzz.ops.base import Operation
from ..source_lines import SourceLine, function_of
from .coverage import Others, other_events
from .explain import MOST_PLACES, Place, named, places
from .recorder import Account
from .suspects import Evidence, evidence, failing_event

# What each kind of evidence is worth: fitted to every second planted bug, by name. docs/fuzzing.md
# says how often the ranking is right for the others.
WEIGHTS = {
    "words": 1.4,
    "rel words": 1.4,
    "words of difference": 0.9,
    "joint": 1.5,
    "telling line": 1.7,
    "rel telling line": 1.0,
    "share of function": 1.1,
    "ran": 0.5,
    "decides a field": 1.7,
    "changed what differs": 0.3,
    "changed it now": 0.3,
    "place": 1.6,
    "above place": 1.2,
    "raised": -0.8,
    "in traceback": -1.3,
    "runtime": 2.9,
    "record": -0.6,
}
MOST_VIA, MOST_REASONS = 2, 3


def where_to_look(account: Account, ops: dict[str, Operation]) -> list[Place]:
    """Returns the places to look at, most likely first; none if the tape does not fail.

    Plays other sequences to compare with. A function that an earlier place shows as a caller has no
    place of its own.
    """
    if account.outcome.failure is None:
        return []
    about = named(account)
    others = other_events(account.outcome.tape, ops)
    before = places(account, about)
    found = evidence(account, about, others, before)
    order = sorted(found, key=lambda function: (-_score(found[function]), function))
    result: list[Place] = []
    shown: set[SourceLine | None] = set()
    for function in order:
        if function in shown:
            continue
        place = _place(function, found, account, others, before)
        result.append(place)
        shown |= {function, *map(function_of, place.via)}
        if len(result) == MOST_PLACES:
            break
    return result


def _score(kinds: dict[str, float]) -> float:
    return sum(WEIGHTS.get(kind, 0.0) * value for kind, value in kinds.items())


def _place(
    function: SourceLine,
    found: Evidence,
    account: Account,
    others: Others,
    before: Sequence[Place],
) -> Place:
    """The line of the function to look at, its callers, and the reasons."""
    at = failing_event(account)
    ran = account.ran[at - 1]
    reasons = list(_reasons(function, found[function], account, others, at))
    old = next((one for one in before if function_of(one.source_line) == function), None)
    if old is not None:
        reasons = [old.why, *reasons]
        line, event = old.source_line, old.event
    else:
        lines = ran.lines.get(function, frozenset())
        line, event = _rarest(lines, others) or function, at
    via = tuple(_callers(function, ran.callers))
    return Place(line, event, "\n".join(reasons[:MOST_REASONS]), via)


def _rarest(lines: frozenset[SourceLine], others: Others) -> SourceLine | None:
    """The line that ran at the fewest other events."""
    times = {
        line: sum(line in some for one in others.fine for some in one.lines.values())
        for line in lines
    }
    return min(sorted(lines), key=times.__getitem__, default=None)


def _callers(function: SourceLine, callers: dict[SourceLine, SourceLine]) -> Iterator[SourceLine]:
    for _ in range(MOST_VIA):
        line = callers.get(function)
        above = None if line is None else function_of(line)
        if line is None or above is None or above.function == "handle":
            return
        yield line
        function = above


def _reasons(
    function: SourceLine, kinds: dict[str, float], account: Account, others: Others, at: int
) -> Iterator[str]:
    """What speaks against a function, the strongest first."""
    if kinds.get("raised") == 1.0:
        yield "the error came from here"
    elif kinds.get("in traceback"):
        yield "in the traceback of the error"
    difference = account.difference
    if difference is not None and kinds.get("changed what differs") == 1.0:
        yield "changed what differs from the specification"
    if difference is not None and kinds.get("decides a field"):
        yield f"decides {' and '.join(difference.fields)} of {difference.makes}, which differs"
    failing = [account.ran[at - 1], *others.failing]
    fine = [*others.fine, *account.ran[: at - 1]]
    bad, good = (sum(function in one.lines for one in some) for some in (failing, fine))
    if bad:
        yield f"ran at {bad} of {len(failing)} failing events, and at {good} of {len(fine)} others"
    else:
        yield "ran before the failing event"
    if kinds.get("words", 0) > 0.9 or kinds.get("words of difference", 0) > 0.9:
        yield "its words fit the failure"
