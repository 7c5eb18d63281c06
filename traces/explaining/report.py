"""Prints an explanation: what failed, the story of each subject, the last events, where to look.

Does not choose the subjects or the source lines; see invariants/explain/explain.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import TextIO

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hicache.core.errors import About
from invariants.books.story import brief
from invariants.explain import explain
from invariants.explain.explain import Place
from invariants.explain.recorder import Account, Step
from invariants.fuzz.tapes.tape import spoken
from invariants.source_lines import ROOT, SourceLine

from ..outside import entries
from ..terminal.tables import console, pairs, table
from ..terminal.text import command_line
from ..terminal.text import name as shown

WIDTH, LAST, MOST_OUTCOMES, MOST_CALLS = 100, 6, 6, 30
INDENT = (0, 0, 0, 2)


def show(
    account: Account,
    about: Sequence[About],
    look: Sequence[Place],
    name: str,
    plant: str,
    stream: TextIO,
) -> None:
    """Prints the whole explanation.

    about: the pages, nodes, requests or flights to tell about. look: where to look. name: the path
    of the tape. plant: the planted bug, or "".
    """
    out = console(stream, WIDTH)
    failure = account.outcome.failure
    bug = f", with {plant} planted" if plant else ""
    if failure is None:
        size = len(account.outcome.tape.entries)
        print(
            f"{shown(name)}: {size} entries, {len(account.steps)} events: no failure{bug}",
            file=stream,
        )
    else:
        print(f"{shown(name)}: {failure.code} {failure.kind}{bug}", file=stream)
        out.print(_verdict(account))
    for one in about:
        out.print(_story_of(account, one))
    if failure is None:
        return
    out.print(_last_events(account))
    if account.steps:
        out.print(_calls_of(account.steps[-1]))
    out.print(_places_to_look(look))
    quoted = command_line([name, *entries.options()])
    option = (
        f" --plant {plant}" if plant and account.outcome.tape.notes.get("plant") != plant else ""
    )
    print(f"\nreplay: hicache fuzz --replay {quoted}{option}", file=stream)


def _verdict(account: Account) -> Table:
    """What failed, where in the tape, and when."""
    failure, tape = account.outcome.failure, account.outcome.tape
    assert failure is not None
    verdict = explain.verdict(failure)
    rows = [("always", verdict.sentence)] if verdict.sentence else []
    rows.append(("found", verdict.equation))
    rows += [
        ("in" if not at else "", str(source_line))
        for at, source_line in enumerate(verdict.source_lines)
    ]
    if account.steps:
        step = account.steps[-1]
        rows.append(("event", f"{step.number}, at {step.now}: {brief(step.event)}"))
    if account.difference is not None:
        first = f"from the specification first at event {account.difference.event}"
        rows += [("differs", f"{first}: {account.difference.what}")]
        rows += [("", account.difference.text)] if account.difference.text else []
    size = len(tape.entries)
    if account.steps and not account.steps[-1].entry:
        rows.append(("entry", f"after all {size}: everything is released and evicted"))
    elif failure.at:
        rows.append(("entry", f"{failure.at} of {size}: {spoken(tape.entries[failure.at - 1])}"))
    return pairs("What failed", rows)


def _story_of(account: Account, subject: About) -> Table:
    rows, left = explain.shortened(explain.rows(account, subject))
    result = _event_table(f"What became of {explain.title(subject)}")
    previous = None
    for at, row in enumerate(rows):
        if at == 1 and left:
            result.add_row("", "", Text(f"... {left} left out, all with --json", style="dim"), "")
        first = row.step is not previous
        if first:
            result.add_row(*_when(row.step), Text(brief(row.step.event), style="bold"), "")
        if row.text:
            source_line = explain.decisive(row.source_lines)
            text = row.text.removeprefix(f"{explain.title(subject)}: ")
            result.add_row("", "", Padding(text, INDENT), _short(source_line))
        previous = row.step
    return result


def _last_events(account: Account) -> Table:
    result = _event_table("The last events")
    for step in account.steps[-LAST:]:
        result.add_row(
            *_when(step), Text(brief(step.event), style="bold"), _short(explain.handler(step.event))
        )
        for item in step.outcomes[:MOST_OUTCOMES]:
            outcome = Text(f"-> {brief(item)}", no_wrap=True, overflow="ellipsis")
            result.add_row("", "", Padding(outcome, INDENT), "")
        if len(step.outcomes) > MOST_OUTCOMES:
            more = f"-> and {len(step.outcomes) - MOST_OUTCOMES} more"
            result.add_row("", "", Padding(more, INDENT), "")
    return result


def _calls_of(step: Step) -> Table:
    result = table(f"What event {step.number} ran", "function", "defined at")
    result.columns[1].justify = "left"
    calls = explain.ran(step)
    for call, times in calls[:MOST_CALLS]:
        often = f" ({times} times)" if times > 1 else ""
        result.add_row(
            f"{'  ' * call.depth}{call.source_line.function}{often}", _place(call.source_line)
        )
    if len(calls) > MOST_CALLS:
        result.add_row(f"... {len(calls) - MOST_CALLS} more", "")
    return result


def _place(source_line: SourceLine) -> str:
    return f"{source_line.file.rpartition('/')[2]}:{source_line.line}"


def _places_to_look(look: Sequence[Place]) -> Table:
    result = table("Where to look, likeliest first", "line", "event", "what it did there")
    result.columns[0].no_wrap, result.columns[2].justify = True, "left"
    for place in look:
        source_line = place.source_line
        source = linecache.getline(str(ROOT / source_line.file), source_line.line).strip()
        why = Text(place.why)
        if source:
            why.append(f"\n{source}", style="dim")
        via = "".join(f"\n  from {_short(one)}" for one in place.via[:2])
        where = f"{source_line.file}:{source_line.line}\n  in {source_line.function}{via}"
        result.add_row(where, str(place.event), why)
    return result


def _event_table(title: str) -> Table:
    result = table(title, "entry", "event", "what happened", "by")
    result.columns[0].justify = result.columns[1].justify = "right"
    result.columns[2].justify = result.columns[3].justify = "left"
    result.columns[3].no_wrap = True
    return result


def _when(step: Step) -> tuple[str, str]:
    return (str(step.entry) if step.entry else "end", str(step.number))


def _short(source_line: SourceLine | None) -> str:
    """File and function, without the folder."""
    if source_line is None:
        return ""
    return f"{_place(source_line)} {source_line.function}"
