"""`hicache compare`: what changed between replays, and why, from their documents.

Takes documents of `replay`, `size` and `sweep`, and reports. The first replay is what the
others are compared with. What changed is found in traces/comparing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from hicache.core.errors import CallerError

from ..comparing import Side, compared, comparison, read_sides, tables, warnings
from ..expected.table import together
from ..html.page import render_comparison
from ..reporting.head import head
from ..results.record import document
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import as_json, check_outputs, write_all
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.streams import name as shown
from ..terminal.tables import console, table

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
        changed = compared(paths, sides[0], sides[1])
    weak, found = warnings(sides), comparison(sides, changed)
    shown_tables, lines = tables(found, sides), []
    for label, text in found.causes.items():
        lines.append(f"Cause{f' ({label})' if len(sides) > 2 else ''}: {text}")
    lines += together(side.error for side in sides)
    for warning in weak:
        print_error(f"warning: {warning}")
    out = sys.stderr if "-" in (options.json, options.html) else sys.stdout
    with ignore_broken_pipe():
        for title, columns, rows in shown_tables:
            made = table(title, *map(shown, columns))
            for row in rows:
                made.add_row(*map(shown, row))
            console(out).print(made)
        for line in lines:
            console(out).print(line)
    whole = head(command, True) | {"kind": "compare", **document(found), "warnings": weak}
    files = []
    if options.json:
        files.append((options.json, as_json(whole)))
    if options.html:
        title = f"{sides[0].label} and {sides[1].label}" if len(sides) == 2 else "Replays compared"
        trace = sides[0].trace
        line = f"{trace.requests:,} requests of {trace.path}; {command}"
        rows = [[side.label, side.path, side.version, side.found.digest] for side in sides]
        columns = ["replay", "document", "version", "digest"]
        shown_tables = [*shown_tables, ("What was compared", columns, rows)]
        about = {"title": title, "line": line, "lines": lines, "warnings": weak}
        files.append((options.html, [render_comparison(whole, tables=shown_tables, **about)]))
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
            pair = getattr(first.trace, key), getattr(side.trace, key)
            if pair[0] != pair[1]:
                raise CallerError(
                    f"{side.path}: expected a replay of the trace of {first.path} ({pair[0]:,} "
                    f"{key.replace('_', ' ')}), found {pair[1]:,}; compare replays of one trace"
                )
