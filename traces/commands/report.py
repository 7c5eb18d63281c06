"""`hicache report`: makes the HTML report again from a document, or one of several."""

from dataclasses import dataclass

from hicache.core.errors import CallerError

from ..html import check_same_trace, joined, read_report, render
from ..results.record import TraceFigures, record_of
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
    inputs = {f"report {number}": path for number, path in enumerate(options.reports, 1)}
    check_outputs(inputs, output=options.output, json=options.json)
    reports = [read_report(path) for path in options.reports]
    first, *traces = [record_of(TraceFigures, report["trace"]) for report in reports]
    for path, trace in zip(options.reports[1:], traces, strict=True):
        check_same_trace(path, trace, first, options.reports[0])
    full = joined(reports, options.title, command)
    files = []
    if options.output:
        files.append((options.output, [render(full)]))
    if options.json:
        files.append((options.json, as_json(full)))
    write_all(files)
    return 0
