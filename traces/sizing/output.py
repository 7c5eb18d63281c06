"""What a study says: the verdict, the table, the report and its document.

Does not measure; see study.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TextIO

from ..deciding.break_even import BreakEven, break_even
from ..deciding.prices import Prices
from ..deciding.verdict import decide
from ..expected.words import together as errors_together
from ..html.document import report
from ..html.prefixes import hot_prefixes
from ..html.render import render
from ..plots.charts import print_curve
from ..replaying.settings import with_bandwidth
from ..reporting import timestamps
from ..reporting.amounts import gigabytes
from ..sweeping.outcome import outcome_of
from ..sweeping.sweep_table import print_outcomes
from ..terminal.output import as_json, write_all
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, percent, print_sentences
from ..terminal.text import name as shown_name
from .lengths import without_hits
from .plan import gpus_of
from .study import Study


def show(
    found: Study,
    prices: Prices | None,
    command: str,
    out: TextIO,
    html: str | None,
    json: str | None,
) -> None:
    """Prints the study and writes the files that were asked for, each whole or not at all."""
    outcomes = [outcome_of(point) for point in found.points]
    assumed = assumptions(found)
    jobs, settings = found.trace.jobs, found.settings
    warnings = [*found.trace.notes, *timestamps.warnings(jobs, settings.speed, settings.load)]
    document = _report(found, prices, command, assumed, warnings)
    told = document["verdict"]["sentences"]
    with ignore_broken_pipe():
        title = f"{len(found.points)} of {found.tasks} points"
        print_outcomes(title, outcomes, out, ranked=False)
        if document["curve"]:
            print_curve(document["curve"], out)
        if warnings:
            print_sentences("Warnings", warnings, out)
        print_sentences("What was assumed", assumed, out)
        print_sentences("Verdict", told, out)
    files: list[tuple[str, Iterable[str]]] = []
    if html and found.points:
        files.append((html, [render(document)]))
    if json:
        files.append((json, as_json(document)))
    write_all(files)
    written = [shown_name(path) for path, _ in files if path != "-"]
    if written:
        with ignore_broken_pipe():
            console(out).print(f"wrote {', '.join(written)}", markup=False)


def _report(
    found: Study, prices: Prices | None, command: str, assumed: list[str], warnings: list[str]
) -> dict[str, Any]:
    trace, jobs = found.trace, found.trace.jobs
    slo = None
    if found.options.slo is not None:
        slo = {f"{name}_s": limit / 1e9 for name, limit in found.options.slo.limits}
    curve = found.curves.document() if found.curves else None
    verdict = decide(found.points, curve, slo, prices, _break_even(found)).document()
    if not trace.identity:
        verdict = without_hits(verdict, found.points)
    return report(
        f"How much memory {os.path.basename(trace.path)} needs",
        command,
        {
            "path": trace.path,
            "format": trace.format,
            "requests": len(jobs),
            "input_tokens": jobs.input_tokens,
        },
        [point["variant"] for point in found.points],
        curve=curve,
        verdict=verdict,
        slo=slo,
        prefixes=hot_prefixes(found.paged) if trace.identity else None,
        warnings=warnings,
        estimates=assumed,
        complete=len(found.points) == found.tasks,
    )


def _break_even(found: Study) -> BreakEven | None:
    """Of the prefix that a request could reuse on average; None if nothing repeats."""
    if found.curves is None or not found.curves.lru.unbounded:
        return None
    settings, requests = found.settings, len(found.trace.jobs)
    prefix = max(1, found.curves.lru.unbounded // requests)
    hardware = with_bandwidth(settings.hardware, found.options.host_bandwidth)
    return break_even(settings.model, hardware, settings.tp, prefix, time_model=settings.times)


def assumptions(found: Study) -> list[str]:
    """What was chosen without being asked for, and how good estimates are."""
    told = []
    options, tried = found.options, found.pilot
    if options.speed is None and options.request_rate is None and tried is not None:
        speed = float(tried.served)
        if tried.served < 1:
            told.append(
                f"The trace offers {tried.offered:.1f} x what this machine can do without host "
                f"memory (its first {tried.requests:,} requests), so it is played at {speed:g} of "
                "its speed; --speed sets another."
            )
        elif tried.offered:
            told.append(
                f"This machine can serve the trace at its own speed (its first {tried.requests:,} "
                "requests were tried)."
            )
    if found.spread:
        told.append(
            "The clock of the trace is coarse, so requests of one instant arrive evenly until the "
            "next one (--spread)."
        )
    if found.curves is None:
        told.append(
            f"{found.trace.path} has lengths only, so no prompt repeats another: there are times, "
            "and no hits, and host memory is not sized."
        )
    elif found.ladder.sizes:
        sizes = ", ".join(gigabytes(size) for size in found.ladder.sizes)
        together = f", of {gpus_of(options.tp)} together," if options.tp > 1 else ""
        told.append(f"Sizes of host memory{together} that were tried: {sizes}.")
    if found.rate < 1:
        told.append(_sampling(found))
    return [*told, *errors_together(point.get("expected_error") for point in found.points)]


def _sampling(found: Study) -> str:
    rate, error = float(found.rate), found.error
    text = (
        f"Replays are of {percent(rate, 1)} of the trace: whole sessions and groups with a common "
        f"prefix. Host memory and the part of the device that running requests leave are {rate:g} "
        f"of what is named, and requests arrive {1 / rate:.3g} x as fast, so that the machine has "
        "the load of the whole trace; times are estimates."
    )
    if error is None:
        return text
    return (
        f"{text} On the curve of hits, which is exact for the whole trace, the same part errs by "
        f"{error.mean * 100:.1f} points of hit rate on average and {error.largest * 100:.1f} at "
        "most."
    )
