"""`hicache replay`: replays a trace in either mode and prints the report."""

import sys
import time
from pathlib import Path

from ..html import render, report
from ..replaying import playing
from ..replaying.config import opened, resolve
from ..replaying.options import ReplayOptions
from ..reporting.outputs import check_files, check_served, finish, warn
from ..reporting.report import sentence, why_rows
from ..reporting.results import charted
from ..results.record import Result, document
from ..terminal.signals import INTERRUPTED
from ..terminal.tables import console, pairs

COMPILED = True
Options = ReplayOptions


def run(options: ReplayOptions, command: str) -> int:
    """Returns the exit code. command: what the user typed, shown with a violation."""
    started = time.perf_counter()
    names = ("json", "requests", "html", "timeline")
    outputs: dict[str, str | None] = {name: getattr(options, name) for name in names}
    check_files(options, **outputs)
    # with a document on standard output, everything else goes to standard error
    out = sys.stderr if "-" in outputs.values() else sys.stdout
    options, trace = opened(options)
    settings, paged = resolve(options, trace)
    check_served(options, trace)
    warnings = warn(trace, settings)
    result = playing.run(
        *(trace, paged, settings, command),
        follow=bool(options.requests) or bool(options.html) or options.why is not None,
        timeline=options.timeline is not None,
        judge=None if options.why is None else lambda item: item.request == options.why,
        start=started,
    )
    if options.why is not None:
        if not result.account.served(options.why):
            return INTERRUPTED
        rows = why_rows(trace, result, options.why)
        console(out).print(pairs(f"Request {options.why}", rows))
        return 0

    def page(results: Result) -> str:
        """The HTML report."""
        limit = results.limit
        texts = [sentence(results)]
        if limit is not None:
            texts += [f"Limits: {limit.text}.", *(f"Try {item}" for item in limit.tries)]
        full = report(
            f"Replay of {Path(trace.path).name}",
            command,
            document(results.trace),
            [document(charted(settings, result, results))],
            verdict={"sentences": texts, "best": None},
            warnings=warnings,
            complete=not result.interrupted,
        )
        return render(full)

    finish(trace, paged, settings, result, options, command, warnings, out, page)
    return INTERRUPTED if result.interrupted else 0
