"""`hicache explain`: plays a tape and shows what led to its failure.

Contains the command, its options and the JSON document. Does not choose the pages, nodes and
requests that a failure concerns (see invariants/explain), and does not print or draw (see
explaining/report and explaining/timeline).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from hicache.core.errors import About, CallerError
from invariants.books.story import brief
from invariants.explain import explain as explainer
from invariants.explain.explain import Place
from invariants.explain.ranking import where_to_look
from invariants.explain.recorder import Account, recorded
from invariants.fuzz.ops import base as operations

from ..explaining.report import LAST, show
from ..explaining.timeline import timeline
from ..fuzzing import planting
from ..fuzzing.tape_file import open_tape
from ..fuzzing.work import allowed_s, limit
from ..outside import entries
from ..terminal import options as read
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from ..terminal.text import name

SUMMARY = "replay a tape and show what led to its failure, with the lines of the core"
GROUP = "trust"
FORMAT, VERSION = "hicache-explain", 1


@dataclass(frozen=True)
class Options(entries.PolicyOptions):
    page: int | None = option(
        "show this page (default: those that the failure names)", *read.COUNT_OR_0
    )
    node: int | None = option(
        "show this node (default: those that the failure names)", *read.COUNT_OR_0
    )
    request: int | None = option(
        "show this request (default: those that the failure names)", *read.COUNT_OR_0
    )
    flight: int | None = option(
        "show this flight (default: those that the failure names)", *read.COUNT_OR_0
    )
    tape: str = option(
        "a tape of `hicache fuzz`, or a test that `hicache shrink` exported",
        read.name,
        "TAPE",
        positional=True,
    )
    component: str | None = option("show the pools of this component, or its --page", str, "NAME")
    trace: str | None = option("write a timeline for ui.perfetto.dev to this file", *read.OUTPUT)
    plant: str | None = planting.bug("the bug in the tape's notes")
    json: str | None = option(
        "also write the result to this file as JSON; - is stdout", *read.OUTPUT
    )


def run(options: Options, command: str) -> int:
    """Returns 0 for a tape that does not fail, or the exit code of its failure."""
    if options.trace == "-" == options.json:
        raise CallerError("--json: expected a file, since the trace goes to stdout, found -")
    inputs = {"tape": options.tape, **entries.files()}
    check_outputs(inputs, trace=options.trace, json=options.json)
    tape = open_tape(options.tape)
    operations.check(tape, operations.load(), options.tape)
    plant = planting.wanted(options.plant, tape, options.tape)
    with planting.planted(plant), limit(allowed_s(len(tape.entries))):
        account = recorded(tape, operations.load(), options.tape)
        look = where_to_look(account, operations.load())
    about = explainer.chosen(
        account,
        options.page,
        options.node,
        options.request,
        options.flight,
        options.component or "",
    )
    about = about or explainer.named(account)
    failure = account.outcome.failure
    stream = sys.stderr if "-" in (options.trace, options.json) else sys.stdout
    with ignore_broken_pipe():
        show(account, about, look, options.tape, plant, stream)
    with ignore_broken_pipe():
        if options.trace:
            write_whole(options.trace, timeline(account))
            if options.trace != "-":
                print(f"\ntrace: {name(options.trace)} (open it in ui.perfetto.dev)", file=stream)
        if options.json:
            write_json(options.json, document(account, about, look, command, plant))
    return failure.code if failure else 0


def document(
    account: Account, about: list[About], look: list[Place], command: str, plant: str
) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    failure, last = account.outcome.failure, account.steps[-1:]
    difference = account.difference
    summary: dict[str, object] | None = None
    if failure is not None:
        verdict = explainer.verdict(failure)
        summary = {
            "code": failure.code,
            "kind": failure.kind,
            "sentence": verdict.sentence,
            "equation": verdict.equation,
            "at": failure.at,
            "event": last[0].number if last else 0,
            "text": failure.text,
        }
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "exit_code": failure.code if failure else 0,
        "planted": plant,
        "entries": len(account.outcome.tape.entries),
        "events": len(account.steps),
        "failure": summary,
        "difference": None
        if difference is None
        else {"event": difference.event, "what": difference.what, "text": difference.text},
        "stories": [
            {
                "about": explainer.title(one),
                "story": [_row(row) for row in explainer.rows(account, one)],
            }
            for one in about
        ],
        "last": [
            {"event": step.number, "what": [brief(one) for one in (step.event, *step.outcomes)]}
            for step in account.steps[-LAST:]
        ],
        "ran": [
            {**call.source_line._asdict(), "depth": call.depth, "times": times}
            for step in last
            for call, times in explainer.ran(step)
        ],
        "look": [
            {
                **place.source_line._asdict(),
                "event": place.event,
                "why": place.why,
                "via": [str(source_line) for source_line in place.via],
            }
            for place in look
        ],
    }


def _row(row: explainer.Row) -> dict[str, object]:
    return {
        "entry": row.step.entry,
        "event": row.step.number,
        "time": row.step.now,
        "what": brief(row.step.event),
        "change": row.text,
        "lines": [str(source_line) for source_line in row.source_lines],
    }
