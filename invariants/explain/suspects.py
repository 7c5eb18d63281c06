"""Collects the evidence against each function that ran.

The words of the failure and of the first difference fit those of the function; it, or one of its
lines, ran at failing events and rarely at others; it changed what the failure or the difference
names; it decides the field of an outcome that differs; it raised the error.

Lives here: the evidence, as numbers. Does not record (see recorder, coverage) or weigh it (see
ranking).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from hicache.core.errors import About
from invariants.base import CRASH

from ..fuzz.play import STORY, Failure
from ..source_lines import SourceLine, function_of
from . import wording
from .coverage import Others, Ran, functions_of
from .deciders import deciders
from .difference import Difference
from .explain import Place, concerns, rows, verdict
from .recorder import Account, Step

Evidence = dict[SourceLine, dict[str, float]]
# What the components in a text stand for, in the words of the core.
MEANING = {"swa": "window windows", "mamba": "state states slot checkpoint"}
RECORDS = ("types.py", "node.py", "config.py", "view.py", "state.py")


def evidence(
    account: Account, about: Sequence[About], others: Others, before: Sequence[Place]
) -> Evidence:
    """Returns the evidence against each function, as numbers by kind.

    about: what the failure names. others: what ran for events of other sequences. before: where
    the changes of what the failure names lead.
    """
    found: Evidence = defaultdict(lambda: defaultdict(float))
    failure, difference = account.outcome.failure, account.difference
    if not account.ran or failure is None:
        return found
    at = failing_event(account)
    for function in {function for one in account.ran for function in one.lines}:
        found[function]["ran"] = float(function in account.ran[at - 1].lines)
    _telling(found, account.ran[:at], others)
    if difference is not None:
        _differing(found, account.steps[at - 1], difference)
    for depth, function in enumerate(functions_of(verdict(failure).source_lines)):
        _most(found, function, "raised", 1 / (1 + depth))
        _most(found, function, "in traceback", 1.0)
    _changed(found, account, about)
    _placed(found, before)
    _worded(found, failure, difference)
    for function, kinds in found.items():
        in_core, name = function.file.startswith("hicache/core/"), function.file.rpartition("/")[2]
        kinds["runtime"] = not in_core
        kinds["record"] = in_core and name in RECORDS
    return found


def failing_event(account: Account) -> int:
    """The number of the event that is judged: the first that differs from the specification, or
    else the last.
    """
    return len(account.ran) if account.difference is None else account.difference.event


def _most(found: Evidence, function: SourceLine, kind: str, value: float) -> None:
    found[function][kind] = max(found[function][kind], value)


def _telling(found: Evidence, ran: Sequence[Ran], others: Others) -> None:
    """How well each function, or one of its lines, tells failing events from all others: their
    Ochiai coefficient.
    """
    failing, fine = [ran[-1], *others.failing], [*others.fine, *ran[:-1]]
    bad = Counter(item for one in failing for item in _items(one))
    good = Counter(item for one in fine for item in _items(one))
    for (function, line), times in bad.items():
        if line is None:
            _most(found, function, "share of function", times / len(failing))
        else:
            value = times / math.sqrt(len(failing) * (times + good[function, line]))
            _most(found, function, "telling line", value)


def _items(one: Ran) -> Iterator[tuple[SourceLine, SourceLine | None]]:
    for function, lines in one.lines.items():
        yield function, None
        for line in lines:
            yield function, line


def _differing(found: Evidence, step: Step, difference: Difference) -> None:
    """The functions that changed what differs, and those that decide the fields that differ."""
    for change in step.changes:
        if any(concerns(change, one) for one in difference.about):
            for depth, function in enumerate(functions_of(change.source_lines)):
                _most(found, function, "changed what differs", 1 / (1 + depth))
    if difference.fields:
        for function, worth in deciders(difference.makes, difference.fields).items():
            if function in found and found[function]["ran"]:
                _most(found, function, "decides a field", worth)


def _changed(found: Evidence, account: Account, about: Sequence[About]) -> None:
    """The functions that changed what the failure names at the last event."""
    last = account.steps[-1]
    for one in about:
        told = [row for row in rows(account, one) if row.source_lines]
        for back, row in enumerate(reversed(told)):
            if row.step is last:
                for depth, function in enumerate(functions_of(row.source_lines)):
                    _most(found, function, "changed it now", 1 / ((1 + depth) * (1 + back)))


def _placed(found: Evidence, before: Sequence[Place]) -> None:
    for at, place in enumerate(before):
        function = function_of(place.source_line)
        if function is not None:
            _most(found, function, "place", 1 / (1 + at))
        for depth, above in enumerate(functions_of(place.via)):
            _most(found, above, "above place", 1 / ((1 + at) * (1 + depth)))


def _worded(found: Evidence, failure: Failure, difference: Difference | None) -> None:
    """How well the words of a function fit those of the failure and of the difference; and this
    together with how well the function tells failing events from others.
    """
    said = failure.text.partition(STORY)[0]
    if failure.code == CRASH:
        said = (said.strip().splitlines() or [""])[-1]
    texts = {"words": said}
    if difference is not None:
        what = difference.what
        texts["words of difference"] = f"{what.partition(': expected')[0]} {what} {difference.text}"
    for kind, text in texts.items():
        meaning = (words for name, words in MEANING.items() if name in text)
        fit = wording.fit(wording.words(" ".join([text, *meaning])), found)
        for function, score in fit.items():
            found[function][kind] = score
    most = {kind: _largest(found, kind) for kind in ("words", "telling line")}
    for kinds in found.values():
        telling = kinds["telling line"] / most["telling line"]
        kinds["rel words"] = kinds["words"] / most["words"]
        kinds["rel telling line"] = telling
        kinds["joint"] = max(kinds["words"], kinds["words of difference"]) * telling


def _largest(found: Evidence, kind: str) -> float:
    return max((kinds[kind] for kinds in found.values()), default=0.0) or 1.0
