"""What a study says: the verdict, the table, the report and its document.

Does not measure; see study.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import log
from typing import Any, TextIO

from ..deciding.break_even import BreakEven, break_even
from ..deciding.limits import digits
from ..deciding.prices import Prices
from ..deciding.serving import RULE, RULE_WITHOUT_LIMITS, accuracy
from ..deciding.verdict import decide
from ..expected.words import together as errors_together
from ..html.document import report
from ..html.prefixes import hot_prefixes
from ..html.render import render
from ..plots.charts import print_curve
from ..replaying.settings import with_bandwidth
from ..reporting import timestamps
from ..reporting.amounts import gigabytes
from ..reporting.conclusions import scaled
from ..sweeping.outcome import outcome_of
from ..sweeping.sweep_table import print_outcomes
from ..terminal.output import as_json, write_all
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, percent, print_sentences
from ..terminal.text import name as shown_name
from .lengths import without_hits
from .plan import gpus_of
from .study import Moved, Study

_STEEP = 2.0  # times as far as the error of a pass


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
        print_sentences("Verdict", told, out)
        print_outcomes(_title(found), outcomes, out, ranked=False)
        if document["curve"]:
            print_curve(document["curve"], out)
        if warnings:
            print_sentences("Warnings", warnings, out)
        print_sentences("What was assumed", assumed, out)
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


def _title(found: Study) -> str:
    at = ""
    if found.curves is not None and found.options.speed is not None:
        at = f" at {float(found.speed):g} x the speed of the trace"
    return f"{len(found.points)} of {found.tasks} points{at}, {found.replays} replays in all"


def _report(
    found: Study, prices: Prices | None, command: str, assumed: list[str], warnings: list[str]
) -> dict[str, Any]:
    trace, jobs = found.trace, found.trace.jobs
    slo = None
    if found.options.slo is not None:
        slo = {f"{name}_s": limit / 1e9 for name, limit in found.options.slo.limits}
    curve = found.curves.document() if found.curves else None
    verdict = decide(
        *(found.points, curve, slo, prices, _break_even(found)),
        served=found.served,
        idle=found.idle,
    ).document()
    if not trace.identity:
        verdict = without_hits(verdict, found.points, found.served)
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
    told = scaled(found.trace)
    options = found.options
    if found.served:
        rule = RULE_WITHOUT_LIMITS
        if found.idle is not None:
            rule = f"{RULE}; on an idle machine {percent(found.idle, 1)} of all do."
        told.append(f"{rule}{accuracy(found.served)}")
    if found.options.spread:
        coarse = "The clock of the trace is coarse: requests" if found.spread else "Requests"
        told.append(
            f"{coarse} arrive at random times until the next timestamp (--spread, --seed); a range "
            "is of replays with other draws of these times."
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
    told += errors_together(point.get("expected_error") for point in found.points)
    return told + moved_times(found.moved)


def moved_times(moved: Moved | None) -> list[str]:
    """How far times move with the error of a pass, as it was measured by replays."""
    if moved is None:
        return []
    whose = "the error to expect of a token's time" if moved.judged else "an assumed error"
    told = []
    for label, times in moved.points.items():
        parts, most = [], 0.0
        for name, (less, plain, more) in times.items():
            if less and plain:
                by = max(abs(log(one / plain)) for one in (less, more))
                most = max(most, by / log(1 + moved.error))
            parts.append(f"{name} TTFT {less:.2f} to {more:.2f} s ({plain:.2f} s as modelled)")
        near = f" (near saturation: up to {most:.1f} times as far as the error)"
        end = near if most > _STEEP else ""
        told.append(f"{label}: {', '.join(parts)}{end}")
    return [
        f"With passes that take {percent(moved.error, 0)} less or more ({whose}), replayed: "
        f"{'; '.join(told)}."
    ]


def _sampling(found: Study) -> str:
    rate, error = float(found.rate), found.error
    text = (
        f"Replays are of {percent(rate, 1)} of the trace: whole sessions and groups with a common "
        f"prefix. Host memory and the part of the device that running requests leave are {rate:g} "
        f"of what is named, and requests arrive {digits(1 / rate)} x as fast, so that the machine "
        "has the load of the whole trace; times are estimates."
    )
    if error is None:
        return text
    return (
        f"{text} On the curve of hits, which is exact for the whole trace, the same part errs by "
        f"{error.mean * 100:.1f} points of hit rate on average and {error.largest * 100:.1f} at "
        "most."
    )
