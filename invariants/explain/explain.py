"""Explains a failure: the objects that it names, their history, and the responsible lines.

Lives here: selecting from a recording. Does not record (see instruments, recorder) or print.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hicache.core.actions import Restarted
from hicache.core.core import _HANDLERS
from hicache.core.errors import About, CallerError
from hicache.core.events import (
    Aborted,
    Event,
    Finished,
    Retracted,
)
from hicache.core.types import Tier
from invariants.books.story import named_by
from invariants.books.tickets import REPLIES

from ..fuzz.play import STORY, Failure
from ..source_lines import Call, SourceLine, line_of
from .instruments import Change
from .recorder import Account, Step

MOST_NAMED, MOST_ROWS, MOST_PLACES, MOST_WORDS = 4, 14, 8, 6
# Every change passes through these files; the line that decided it is a caller.
PLUMBING = ("ledger.py", "locks.py", "lru.py", "node.py", "tree.py", "boundaries.py")
_ENDS = (Finished, Aborted, Retracted)


class Row(NamedTuple):
    """One change of an object. text: empty for an event that only names it. kept: its holder ended
    and still has it. minor: omitted from long lists.
    """

    step: Step
    text: str
    source_lines: tuple[SourceLine, ...] = ()
    kept: bool = False
    minor: bool = False


class Place(NamedTuple):
    """A source line, and the reason to look there: what it did in which event. via: its callers,
    innermost first.
    """

    source_line: SourceLine
    event: int
    why: str
    via: tuple[SourceLine, ...] = ()


class Verdict(NamedTuple):
    """A failure in words. sentence: the property. equation: what was found instead."""

    sentence: str
    equation: str
    source_lines: tuple[SourceLine, ...] = ()


def verdict(failure: Failure) -> Verdict:
    """Returns the sentence, the equation and the source lines of a failure."""
    before = failure.text.partition(STORY)[0]
    told = (line for line in before.splitlines() if not line.startswith("replay: "))
    lines = [line for line in told if line.strip()] or [failure.kind]
    if lines[0].startswith("Traceback"):
        return Verdict("", lines[-1], failure.raised)
    first = lines[0].removeprefix(f"{failure.kind}: ")
    if len(lines) > 1 and first != lines[0]:
        return Verdict(first, lines[1].strip(), failure.raised)
    words = "\n".join([first, *map(str.strip, lines[1:MOST_WORDS])])
    return Verdict("", words, failure.raised)


# -- whom


def named(account: Account) -> list[About]:
    """Returns the objects that the failure names, else those of the last event."""
    failure = account.outcome.failure
    if failure is None:
        return []
    found = list(failure.about)
    if not found and account.steps:
        found = named_by(account.steps[-1].event)
    return list(dict.fromkeys(found))[:MOST_NAMED]


def pool_of(tier: int, component: str) -> About:
    return About("pool", -1, tier, component)


def page_of(tier: int, component: str, number: int) -> About:
    return About("page", number, tier, component)


def title(one: About) -> str:
    where = {0: "device ", 1: "host "}.get(one.tier, "")
    if one.kind == "pool":
        return f"{where}pool of {one.component}"
    return f"{where}{one.component}{' ' * bool(one.component)}{one.kind} {one.number}"


def chosen(
    account: Account,
    page: int | None = None,
    node: int | None = None,
    request: int | None = None,
    flight: int | None = None,
    component: str = "",
) -> list[About]:
    """Returns the objects that the options name. Raises CallerError for an object without any
    change.
    """
    names = account.outcome.tape.config.components
    if component and component not in names:
        raise CallerError(
            f"--component: expected one of {', '.join(names)}, which the tape has, found "
            f"{component!r}"
        )
    wanted = [component] if component else list(names)
    asked = [
        (f"--{kind}", [About(kind, number)])
        for kind, number in (("node", node), ("request", request), ("flight", flight))
        if number is not None
    ]
    if page is not None:
        asked.append(("--page", [page_of(tier, name, page) for tier in (0, 1) for name in wanted]))
    elif component:
        asked.append(("--component", [pool_of(tier, component) for tier in (0, 1)]))
    found: list[About] = []
    for option, some in asked:
        met = [one for one in some if rows(account, one)]
        if not met:
            raise CallerError(
                f"{option}: expected a number that the tape leads to, found "
                f"{some[0].number if some[0].number >= 0 else component}, to which nothing happens"
            )
        found += met
    return found


# -- what became of them


def rows(account: Account, one: About) -> list[Row]:
    """Returns every change of an object, in order."""
    found: list[Row] = []
    kept: dict[object, tuple[tuple[str, int], str]] = {}  # current holders or locks
    for step in account.steps:
        some = [change for change in step.changes if concerns(change, one)]
        if not some and _names(step, one):
            found.append(Row(step, ""))
        for change in some:
            found.append(Row(step, change.text, change.source_lines, minor=change.minor))
            _keep(kept, change, one)
        for whom, words in kept.values():
            if _is_over(step, whom):
                found.append(Row(step, f"{whom[0]} {whom[1]} is over; {words}", kept=True))
    return found


def _keep(kept: dict[object, tuple[tuple[str, int], str]], change: Change, one: About) -> None:
    """Updates the holder of a page, or the locks of a node."""
    if one.kind == "page" and change.tier == one.tier and "loan" not in change.text:
        kept.clear()
        if change.after[0] in ("request", "flight"):
            kept["page"] = (change.after, "the page stays with it")
    elif one.kind == "node" and change.lock:
        place = (change.lock, change.tier, change.component)
        if kept.pop(place, None) is None and change.whom:
            side = Tier(change.tier).name.lower()
            kept[place] = (change.whom[0], f"its lock on {side} {change.component} stays")


def _is_over(step: Step, whom: tuple[str, int]) -> bool:
    kind, number = whom
    if kind == "request":
        ended = isinstance(step.event, _ENDS) and step.event.request == number
        return ended or any(
            isinstance(item, Restarted) and item.request == number for item in step.outcomes
        )
    return isinstance(step.event, REPLIES) and step.event.flight == number


def concerns(change: Change, one: About) -> bool:
    if one.kind == "node":
        return change.node == one.number
    if one.kind in ("page", "pool"):
        same = change.tier == one.tier and change.component == one.component and change.node < 0
        return same and (one.kind == "pool" or one.number in change.pages)
    return (one.kind, one.number) in change.whom


def _names(step: Step, one: About) -> bool:
    if one.kind not in ("request", "flight"):
        return False
    return any(getattr(item, one.kind, None) == one.number for item in (step.event, *step.outcomes))


def shortened(found: Sequence[Row], most: int = MOST_ROWS) -> tuple[list[Row], int]:
    """Returns at most `most` rows, without minor ones if there are too many, and the number
    omitted.
    """
    if len(found) <= most:
        return list(found), 0
    main = [row for row in found if not row.minor] or list(found)
    shown = main if len(main) <= most else [main[0], *main[1 - most :]]
    return shown, len(found) - len(shown)


# -- which lines


def decisive(source_lines: Sequence[SourceLine]) -> SourceLine | None:
    """Returns the innermost line outside the files of PLUMBING."""
    outer = [one for one in source_lines if not _is_plumbing(one)]
    return next(iter(outer or source_lines), None)


def _is_plumbing(source_line: SourceLine) -> bool:
    folder, _, name = source_line.file.rpartition("/")
    in_core = folder.startswith("hicache/core")  # planted bugs have files of the same names
    return (in_core and name in PLUMBING) or folder == "hicache/devices"


def handler(event: Event) -> SourceLine | None:
    """The core's function for this kind of event."""
    return line_of(_HANDLERS.get(type(event)))


def ran(step: Step) -> list[tuple[Call, int]]:
    """Returns the functions that an event called, in order, without those in PLUMBING, each with
    the number of consecutive calls.
    """
    found: list[tuple[Call, int]] = []
    for call in step.calls:
        if _is_plumbing(call.source_line):
            continue
        if found and found[-1][0] == call:
            found[-1] = (call, found[-1][1] + 1)
        else:
            found.append((call, 1))
    return found


def places(account: Account, whom: Sequence[About]) -> list[Place]:
    """Returns lines to look at, most likely first.

    The order: changes of the objects by the last event; changes when a holder ended without
    releasing them; other changes by the last event; earlier changes of the objects.
    """
    if not account.steps:
        return []
    last = account.steps[-1]
    told = [(one, rows(account, one)) for one in whom]
    now = [row for _, some in told for row in some if row.source_lines and row.step is last]
    before = [row for _, some in told for row in some if row.source_lines and row.step is not last]
    failure = account.outcome.failure
    crash = verdict(failure).source_lines if failure is not None else ()
    now.sort(key=lambda row: "loan" not in row.text)
    ranked = list(_place(last, "the failure came from here", crash))
    for row in reversed(now):
        ranked += _place(row.step, row.text, row.source_lines)
    for one, some in told:
        for step in [row.step for row in some if row.kept][-1:]:
            ranked += _beside(step, one)
    ranked += [place for one in whom for place in _beside(last, one)]
    ranked += _begun(last)
    ranked += [place for row in reversed(before[-2:]) for place in _place(*row[:3])]
    ranked += [place for one in last.changes for place in _place(last, one.text, one.source_lines)]
    first: dict[SourceLine, Place] = {}
    for place in ranked:
        first.setdefault(place.source_line, place)
    return list(first.values())[:MOST_PLACES]


def _beside(step: Step, one: About) -> Iterator[Place]:
    """Yields what an event did to similar objects: other pages of the pool, locks of other nodes,
    the same request or flight. If there is nothing, yields the event's handler.
    """
    done = False
    for change in reversed(step.changes):
        alike = change.lock > 0 if one.kind == "node" else "loan" not in change.text
        if one.kind in ("page", "pool"):
            same = (change.tier, change.component) == (one.tier, one.component)
            alike &= same and change.node < 0 and (one.kind == "pool" or bool(change.pages))
        if alike and change.source_lines:
            done = True
            yield from _place(step, change.text, change.source_lines)
    if not done:
        yield from _begun(step)


def _begun(step: Step) -> Iterator[Place]:
    begun = handler(step.event)
    if begun is not None:
        yield Place(begun, step.number, f"takes {type(step.event).__name__}")


def _place(step: Step, text: str, source_lines: Sequence[SourceLine]) -> Iterable[Place]:
    source_line = decisive(source_lines)
    if source_line is None:
        return []
    via = tuple(
        one
        for one in source_lines[source_lines.index(source_line) + 1 :]
        if one.function != "handle"
    )
    return [Place(source_line, step.number, text, via)]
