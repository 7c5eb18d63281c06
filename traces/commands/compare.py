"""`hicache compare`: what changed between replays, and why, from their documents.

Takes documents of `replay`, `size` and `sweep`, and reports. The first replay is what the
others are compared with. Does not replay, or find what changed (see traces/comparing).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hicache.core.errors import CallerError

from ..comparing import requests as by_request
from ..comparing.changes import sentences, warnings
from ..comparing.sides import Side, read_sides
from ..comparing.tables import all_tables, changed_requests, document, print_tables, runs_table
from ..expected.words import together
from ..html.page import render_comparison
from ..reporting.head import head
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import as_json, check_outputs, write_all
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.tables import print_sentences
from ..terminal.text import name as shown

_MOST_SIDES = 64


@dataclass(frozen=True)
class Options(OptionRecord):
    documents: tuple[str, ...] = option(
        "JSON of replay, size or sweep, or a report; the first replay in them is what the "
        "others are compared with",
        read.name,
        "DOCUMENT",
        positional=True,
        several=True,
    )
    requests: tuple[str, ...] | None = option(
        "the files of `hicache replay --requests` of both replays: also show the requests "
        "that changed most",
        read.name,
        "A B",
        values=2,
    )
    json: str | None = option("also write the figures; - is stdout", *read.OUTPUT)
    html: str | None = option("also write an HTML page; - is stdout", *read.OUTPUT)


def run(options: Options, command: str) -> int:
    if options.json == options.html == "-":
        raise CallerError("--html: expected a file, since --json has stdout, found -; name one")
    names = (*options.documents, *(options.requests or ()))
    inputs = {f"input {number}": path for number, path in enumerate(names, 1)}
    check_outputs(inputs, json=options.json, html=options.html)
    sides = _named([side for path in options.documents for side in read_sides(path)])
    _check(sides, options)
    changed = None
    if options.requests:
        paths = options.requests[0], options.requests[1]
        changed = by_request.compared(paths, sides[0], sides[1])
    told = {side.label: sentences(sides[0], side) for side in sides[1:]}
    if changed is not None:
        told[sides[1].label].append(changed_requests(changed))
    errors = together(side.expected_error for side in sides)
    weak = warnings(sides)
    for warning in weak:
        print_error(f"warning: {warning}")
    out = sys.stderr if "-" in (options.json, options.html) else sys.stdout
    with ignore_broken_pipe():
        print_tables(sides, changed, out)
        for label, found in told.items():
            of = f": {shown(label)}" if len(told) > 1 else ""
            print_sentences(f"In words{of}", found, out)
        if errors:
            print_sentences("How far times may be off", errors, out)
    whole = {
        **head(command, True),
        "kind": "compare",
        **document(sides, changed),
        "warnings": weak,
        "conclusions": [{"label": label, "sentences": found} for label, found in told.items()],
    }
    files = []
    if options.json:
        files.append((options.json, as_json(whole)))
    if options.html:
        title = f"{sides[0].label} and {sides[1].label}" if len(sides) == 2 else "Replays compared"
        trace = sides[0].trace
        line = f"{trace['requests']:,} requests of {trace['path']}; {command}"
        tables = [*all_tables(sides, changed), runs_table(sides)]
        about = {"title": title, "line": line, "conclusions": told, "errors": errors}
        files.append((options.html, [render_comparison(whole, tables=tables, **about)]))
    write_all(files)
    return 0


def _named(sides: list[Side]) -> list[Side]:
    """Each side with a label of its own: a number is added to one that is there again."""
    seen: dict[str, int] = {}
    found = []
    for side in sides:
        seen[side.label] = number = seen.get(side.label, 0) + 1
        found.append(side if number == 1 else replace(side, label=f"{side.label} ({number})"))
    return found


def _check(sides: Sequence[Side], options: Options) -> None:
    """Raises CallerError for replays that cannot be compared."""
    if len(sides) < 2:
        raise CallerError(
            f"compare: expected two replays, found {len(sides)} in {options.documents[0]}; name "
            "another document"
        )
    if len(sides) > _MOST_SIDES:
        raise CallerError(
            f"compare: expected at most {_MOST_SIDES} replays, found {len(sides)}; name fewer"
        )
    if options.requests and len(sides) > 2:
        raise CallerError(
            f"--requests: expected two replays, found {len(sides)}; name two documents"
        )
    first = sides[0]
    for side in sides[1:]:
        for key in ("requests", "input_tokens"):
            pair = first.trace.get(key), side.trace.get(key)
            if None not in pair and pair[0] != pair[1]:
                raise CallerError(
                    f"{side.path}: expected a replay of the trace of {first.path} ({pair[0]:,} "
                    f"{key.replace('_', ' ')}), found {pair[1]:,}; compare replays of one trace"
                )
