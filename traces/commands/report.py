"""`hicache report`: makes the HTML report again from a document, or one of several.

Does not measure (see `hicache size` and `hicache replay --html`) or draw (see traces/html).
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.errors import CallerError

from ..html import joined, read_report, render
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import as_json, check_outputs, write_all


@dataclass(frozen=True)
class Options(OptionRecord):
    reports: tuple[str, ...] = option(
        "a report (JSON or HTML), or JSON of replay or sweep; the replays of several stand side by "
        "side",
        read.name,
        "REPORT",
        positional=True,
        several=True,
    )
    output: str | None = option("write the HTML file here", *read.OUTPUT, short="-o")
    json: str | None = option("write the document; - is stdout", *read.OUTPUT)
    title: str | None = option("the title (default: that of the first)", read.name, "TEXT")


def run(options: Options, command: str) -> int:
    if not (options.output or options.json):
        raise CallerError("report: expected --output or --json, found none; say what to make")
    if options.output == options.json == "-":
        raise CallerError("--json: expected a file, since --output has stdout, found -; name one")
    inputs = {f"report {number}": path for number, path in enumerate(options.reports, 1)}
    check_outputs(inputs, output=options.output, json=options.json)
    reports = [read_report(path) for path in options.reports]
    first = reports[0]["trace"]
    for path, report in zip(options.reports, reports, strict=True):
        for key in ("requests", "input_tokens"):
            if report["trace"][key] != first[key]:
                raise CallerError(
                    f"{path}: expected a report of the same trace as {options.reports[0]} "
                    f"({first[key]:,} {key.replace('_', ' ')}), found {report['trace'][key]:,}; "
                    "make a report of each"
                )
    whole = joined(reports, options.title, command)
    files = []
    if options.output:
        files.append((options.output, [render(whole)]))
    if options.json:
        files.append((options.json, as_json(whole)))
    write_all(files)
    return 0
