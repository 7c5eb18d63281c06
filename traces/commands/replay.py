"""`hicache replay`: replays a trace in either mode and prints the report."""

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.json import encode
from msgspec.structs import replace

from hicache.core.errors import CallerError
from sim.fleet import FleetResult

from ..formats.base import Trace
from ..html import render, report
from ..replaying import playing
from ..replaying.config import opened, resolve
from ..replaying.options import ReplayOptions
from ..replaying.playing import Play
from ..replaying.timeline import timeline
from ..reporting.report import print_report, sentence, why_rows
from ..reporting.results import charted, limit_of, requests_of, result_of
from ..reporting.warnings import repeat_warnings, warn
from ..results.record import Result, document, head
from ..terminal.output import as_json, check_outputs, write_all
from ..terminal.signals import INTERRUPTED
from ..terminal.tables import console, pairs

Options = ReplayOptions


def run(options: ReplayOptions, command: str) -> int:
    """Returns the exit code. command: what the user typed, shown with a violation."""
    started = time.perf_counter()
    names = ("json", "requests", "html", "timeline")
    outputs: dict[str, str | None] = {name: getattr(options, name) for name in names}
    check_outputs(options.inputs, **outputs)
    # with a document on standard output, everything else goes to standard error
    out = sys.stderr if "-" in outputs.values() else sys.stdout
    options, trace = opened(options)
    settings, paged = resolve(options, trace)
    _check_served(options, trace, outputs.values())
    warnings = warn(trace, settings)
    play = playing.run(
        *(trace, paged, settings, command),
        follow=bool(options.requests) or bool(options.html) or options.why is not None,
        timeline=options.timeline is not None,
        judge=None if options.why is None else lambda item: item.request == options.why,
        start=started,
    )
    if options.why is not None:
        if not play.account.served(options.why):
            return INTERRUPTED
        rows = why_rows(play, options.why)
        console(out).print(pairs(f"Request {options.why}", rows))
        return 0
    result = replace(result_of(play), options=options.repeat)
    result = replace(result, limit=limit_of(options, settings, paged, result))
    print_report(trace, settings, result, options.verbose, out)
    repeat_warnings(warnings, out)
    files: list[tuple[str, Iterable[str]]] = []
    if options.requests:
        lines = (encode(item).decode() + "\n" for item in requests_of(play, settings.slo))
        files.append((options.requests, lines))
    if options.timeline and play.result is not None:
        trips = play.result.trips if isinstance(play.result, FleetResult) else {}
        drawn = timeline(play.timelines, play.result.requests, play.choices, trips)
        files.append((options.timeline, drawn))
    if options.json:
        full = head(command, complete=not play.interrupted) | document(result)
        files.append((options.json, as_json(full | {"warnings": warnings})))
    if options.html:
        files.append((options.html, [_page(play, result, command, warnings)]))
    write_all(files)
    return INTERRUPTED if play.interrupted else 0


def _check_served(options: ReplayOptions, trace: Trace, outputs: Iterable[str | None]) -> None:
    """Raises CallerError if the request of `--why` is not in the trace."""
    if options.why is not None and any(outputs):
        raise CallerError(
            "--why: expected no --json, --requests, --html or --timeline, which belong to a whole "
            "replay, found one; give either"
        )
    if options.why is not None and options.why >= len(trace.jobs):
        raise CallerError(
            f"--why: expected a request that is served, from 0 to {len(trace.jobs) - 1}, found "
            f"{options.why}; name another"
        )


def _page(play: Play, result: Result, command: str, warnings: Sequence[str]) -> str:
    """The HTML report."""
    texts = [sentence(result)]
    if result.limit is not None:
        tries = (f"Try {item}" for item in result.limit.tries)
        texts += [f"Limits: {result.limit.text}.", *tries]
    full = report(
        f"Replay of {Path(play.trace.path).name}",
        command,
        document(result.trace),
        [document(charted(play, result))],
        verdict={"sentences": texts, "best": None},
        warnings=warnings,
        complete=not result.interrupted,
    )
    return render(full)
