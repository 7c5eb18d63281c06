"""`hicache report`: makes the HTML report again from a document, or one of several.

Reads reports as JSON, or as HTML files, which have their document inside. Does not measure (see
`hicache size` and `hicache replay --html`) or draw (see traces/html).
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.errors import CallerError

from ..html.document import joined, read_report
from ..html.page import render
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import as_json, check_outputs, write_all


@dataclass(frozen=True)
class Options(OptionRecord):
    reports: tuple[str, ...] = option(
        "a report, as JSON or HTML; of several, the variants stand side by side",
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
    for path, report in zip(options.reports[1:], reports[1:], strict=True):
        _check_trace(path, report["trace"], options.reports[0], reports[0]["trace"])
    whole = joined(reports, options.title, command)
    files = []
    if options.output:
        files.append((options.output, [render(whole)]))
    if options.json:
        files.append((options.json, as_json(whole)))
    write_all(files)
    return 0


def _check_trace(
    path: str, found: dict[str, object], first_path: str, first: dict[str, object]
) -> None:
    """Raises CallerError for a report of other requests than the first report's."""
    for key in ("requests", "input_tokens"):
        if found[key] != first[key]:
            raise CallerError(
                f"{path}: expected a report of the same trace as {first_path} ({first[key]:,} "
                f"{key.replace('_', ' ')}), found {found[key]:,}; make a report of each"
            )
