"""How a story is printed: what failed, whom it concerns, the last events, and where to look.

Must not live here: any choice of what concerns whom (invariants/explain/explain).
"""

from __future__ import annotations

import linecache
import shlex
from collections.abc import Sequence
from typing import TextIO

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hicache.core.errors import About
from invariants.books.story import brief
from invariants.explain import explain
from invariants.explain.recorder import Account, Step
from invariants.fuzz.tapes.spoken import spoken
from invariants.source_lines import ROOT, SourceLine

from ..outside import entries
from ..terminal.tables import console, pairs, table

WIDTH, LAST, MOST_OUTCOMES, MOST_CALLS = 100, 6, 6, 30
INDENT = (0, 0, 0, 2)


def show(account: Account, whom: Sequence[About], name: str, plant: str, stream: TextIO) -> None:
    """The whole story."""
    out = console(stream, WIDTH)
    failure = account.outcome.failure
    bug = f", with {plant} planted" if plant else ""
    if failure is None:
        size = len(account.outcome.tape.entries)
        print(f"{name}: {size} entries, {len(account.steps)} events: no failure{bug}", file=stream)
    else:
        print(f"{name}: {failure.code} {failure.kind}{bug}", file=stream)
        out.print(_verdict(account))
    for one in whom:
        out.print(_story(account, one))
    if failure is None:
        return
    out.print(_last(account))
    if account.steps:
        out.print(_ran(account.steps[-1]))
    out.print(_look(account, whom))
    quoted = shlex.join([name, *entries.options()])
    option = (
        f" --plant {plant}" if plant and account.outcome.tape.notes.get("plant") != plant else ""
    )
    print(f"\nreplay: hicache fuzz --replay {quoted}{option}", file=stream)


def _verdict(account: Account) -> Table:
    """What failed, where in the tape, and when."""
    failure, tape = account.outcome.failure, account.outcome.tape
    assert failure is not None
    said = explain.verdict(failure)
    rows = [("always", said.sentence)] if said.sentence else []
    rows.append(("found", said.equation))
    rows += [
        ("in" if not at else "", str(source_line))
        for at, source_line in enumerate(said.source_lines)
    ]
    if account.steps:
        step = account.steps[-1]
        rows.append(("event", f"{step.number}, at {step.now}: {brief(step.event)}"))
    size = len(tape.entries)
    if account.steps and not account.steps[-1].entry:
        rows.append(("entry", f"after all {size}: everything is released and evicted"))
    elif failure.at:
        rows.append(("entry", f"{failure.at} of {size}: {spoken(tape.entries[failure.at - 1])}"))
    return pairs("What failed", rows)


def _story(account: Account, one: About) -> Table:
    found, left = explain.shortened(explain.rows(account, one))
    made = _events(f"What became of {explain.title(one)}")
    before = None
    for at, row in enumerate(found):
        if at == 1 and left:
            made.add_row("", "", Text(f"... {left} left out, all with --json", style="dim"), "")
        first = row.step is not before
        if first:
            made.add_row(*_when(row.step), Text(brief(row.step.event), style="bold"), "")
        if row.text:
            source_line = explain.decisive(row.source_lines)
            text = row.text.removeprefix(f"{explain.title(one)}: ")
            made.add_row("", "", Padding(text, INDENT), _short(source_line))
        before = row.step
    return made


def _last(account: Account) -> Table:
    made = _events("The last events")
    for step in account.steps[-LAST:]:
        made.add_row(
            *_when(step), Text(brief(step.event), style="bold"), _short(explain.handler(step.event))
        )
        for item in step.outcomes[:MOST_OUTCOMES]:
            said = Text(f"-> {brief(item)}", no_wrap=True, overflow="ellipsis")
            made.add_row("", "", Padding(said, INDENT), "")
        if len(step.outcomes) > MOST_OUTCOMES:
            more = f"-> and {len(step.outcomes) - MOST_OUTCOMES} more"
            made.add_row("", "", Padding(more, INDENT), "")
    return made


def _ran(step: Step) -> Table:
    made = table(f"What event {step.number} ran", "function", "defined at")
    made.columns[1].justify = "left"
    found = explain.ran(step)
    for call, times in found[:MOST_CALLS]:
        often = f" ({times} times)" if times > 1 else ""
        made.add_row(
            f"{'  ' * call.depth}{call.source_line.function}{often}", _place(call.source_line)
        )
    if len(found) > MOST_CALLS:
        made.add_row(f"... {len(found) - MOST_CALLS} more", "")
    return made


def _place(source_line: SourceLine) -> str:
    return f"{source_line.file.rpartition('/')[2]}:{source_line.line}"


def _look(account: Account, whom: Sequence[About]) -> Table:
    made = table("Where to look, likeliest first", "line", "event", "what it did there")
    made.columns[0].no_wrap, made.columns[2].justify = True, "left"
    for place in explain.places(account, explain.named(account) or whom):
        source_line = place.source_line
        source = linecache.getline(str(ROOT / source_line.file), source_line.line).strip()
        why = Text(place.why)
        if source:
            why.append(f"\n{source}", style="dim")
        via = "".join(f"\n  from {_short(one)}" for one in place.via[:2])
        where = f"{source_line.file}:{source_line.line}\n  in {source_line.function}{via}"
        made.add_row(where, str(place.event), why)
    return made


def _events(title: str) -> Table:
    made = table(title, "entry", "event", "what happened", "by")
    made.columns[0].justify = made.columns[1].justify = "right"
    made.columns[2].justify = made.columns[3].justify = "left"
    made.columns[3].no_wrap = True
    return made


def _when(step: Step) -> tuple[str, str]:
    return (str(step.entry) if step.entry else "end", str(step.number))


def _short(source_line: SourceLine | None) -> str:
    """File and function, without the folder that all share."""
    if source_line is None:
        return ""
    return f"{_place(source_line)} {source_line.function}"
