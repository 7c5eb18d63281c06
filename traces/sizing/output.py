"""What a study says: the verdict, the table, the report and its document.

Of a trace that has lengths only nothing is said of hits, since nobody knows which prompts begin
alike. Does not measure; see study.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import log
from typing import Any, TextIO

from ..deciding.break_even import BreakEven, break_even
from ..deciding.limits import digits
from ..deciding.measured import span
from ..deciding.prices import Prices
from ..deciding.serving import RULE, RULE_WITHOUT_LIMITS, Served, accuracy, sentences
from ..deciding.verdict import decide
from ..deciding.words import UNMET
from ..expected.words import together as errors_together
from ..html.document import report
from ..html.prefixes import hot_prefixes
from ..html.render import render
from ..replaying.settings import with_bandwidth
from ..reporting import timestamps
from ..reporting.amounts import gigabytes
from ..reporting.conclusions import scaled
from ..sweeping.outcome import outcome_of, print_outcomes
from ..terminal.output import as_json, write_all
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import percent, print_sentences, print_written
from .candidates import demand_of
from .decision import Decision
from .plan import copies_of, device_is_enough, gpus_of
from .splits import Splits
from .study import Moved, Study

TAILS = "Nobody has validated p90 and p99: published runs to compare them with are too few."
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
    curve = found.curves.document() if found.curves else None
    slo = limits_of(found)
    verdict = decide(
        *(found.points, curve, slo, prices, _break_even(found)),
        served=found.served,
        idle=found.idle,
    ).document()
    if not found.trace.identity:
        verdict = without_hits(verdict, found.points, found.served)
    else:
        first, *rest = verdict["sentences"]
        whole = whole_load(found, unmet=first.startswith(UNMET))
        verdict = {**verdict, "sentences": [first, *whole, *rest]}
    complete = len(found.points) == found.tasks
    if found.points and not complete:
        many = f"{len(found.points)} of {found.tasks}"
        told = f"The run did not end: only {many} points were replayed, and these alone are judged."
        verdict = {**verdict, "sentences": [told, *verdict["sentences"]]}
    document = report_of(
        found,
        f"How much memory {os.path.basename(found.trace.path)} needs",
        command,
        [point["variant"] for point in found.points],
        verdict,
        assumptions(found),
        complete=complete,
    )

    def tables() -> None:
        outcomes = [outcome_of(point) for point in found.points]
        print_outcomes(_title(found), outcomes, out, ranked=False)

    print_report("Verdict", document, tables, out)
    write_report(document, html if found.points else None, json, out)


def limits_of(found: Study | Decision) -> dict[str, float] | None:
    slo = found.options.slo
    return None if slo is None else {f"{name}_s": limit / 1e9 for name, limit in slo.limits}


def report_of(
    found: Study | Decision,
    title: str,
    command: str,
    variants: Sequence[Mapping[str, Any]],
    verdict: Mapping[str, Any],
    assumed: Sequence[str],
    complete: bool,
    decision: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of the report."""
    trace, jobs, settings = found.trace, found.trace.jobs, found.settings
    rate = found.part.rate if isinstance(found, Decision) else found.rate
    return report(
        title,
        command,
        {
            "path": trace.path,
            "format": trace.format,
            "requests": len(jobs),
            "input_tokens": jobs.input_tokens,
        },
        variants,
        curve=found.curves.document() if found.curves else None,
        verdict=verdict,
        decision=decision,
        slo=limits_of(found),
        # of a trace too long to replay, counting every page takes gigabytes
        prefixes=hot_prefixes(found.paged) if trace.identity and rate == 1 else None,
        warnings=[*trace.notes, *timestamps.warnings(jobs, settings.speed, settings.load)],
        estimates=assumed,
        complete=complete,
    )


def print_report(
    title: str, document: Mapping[str, Any], tables: Callable[[], None], out: TextIO
) -> None:
    """The sentences of a report, what `tables` prints, and what was assumed."""
    with ignore_broken_pipe():
        print_sentences(title, document["verdict"]["sentences"], out)
        tables()
        if document["warnings"]:
            print_sentences("Warnings", document["warnings"], out)
        print_sentences("What was assumed", document["estimates"], out)


def write_report(document: dict[str, Any], html: str | None, json: str | None, out: TextIO) -> None:
    files = [(html, [render(document)])] if html else []
    files += [(json, as_json(document))] if json else []
    write_all(files)
    print_written((path for path, _ in files), out)


def _title(found: Study) -> str:
    at = ""
    if found.curves is not None and found.options.speed is not None:
        at = f" at {float(found.speed):g} x the speed of the trace"
    return f"{len(found.points)} of {found.tasks} points{at}, {found.replays} replays in all"


def whole_load(found: Study, unmet: bool) -> list[str]:
    """Which part of the trace's load was played, where that is less than all of it, and what says
    which machine serves all. unmet: whether nothing that was tried meets the limits."""
    options = found.options
    own = options.request_rate or options.concurrency or options.closed_loop
    if found.speed >= 1 or own or found.curves is None:
        told = "Without --hardware, hicache size searches the cheapest machine that meets them."
        return [told] if unmet else []
    whole = demand_of(found.trace, None, Fraction(1))
    rates = [digits(float(at) * whole.requests_per_s) for at in (found.speed, Fraction(1))]
    of = f" ({' of '.join(rates)} requests a second)" if whole.requests_per_s else ""
    return [
        f"All figures are for {percent(float(found.speed), 0)} of the trace's load{of}; hicache "
        "size with --slo and without --hardware says which machine serves all of it."
    ]


def _break_even(found: Study) -> BreakEven | None:
    """Of the prefix that a request could reuse on average; None if nothing repeats."""
    if found.curves is None or not found.curves.lru.unbounded:
        return None
    settings, requests = found.settings, len(found.trace.jobs)
    prefix = max(1, found.curves.lru.unbounded // requests)
    hardware = with_bandwidth(settings.hardware, found.options.host_bandwidth)
    ranks = settings.parallelism
    return break_even(settings.model, hardware, ranks.tp, prefix, settings.times, ranks.pp)


def assumptions(found: Study) -> list[str]:
    """What was chosen without being asked for, and how good estimates are."""
    told = scaled(found.trace)
    options = found.options
    if found.served:
        rule = RULE_WITHOUT_LIMITS
        if found.idle is not None:
            rule = f"{RULE}; on an idle machine {percent(found.idle, 1)} of all do."
        told.append(f"{rule}{accuracy(found.served)}")
    told += arrivals_told(found, "; a range is of replays with other draws of these times")
    if found.curves is None:
        told.append(
            f"{found.trace.path} has lengths only, so no prompt repeats another: there are times, "
            "and no hits, and host memory is not sized."
        )
    elif found.ladder.sizes:
        sizes = ", ".join(gigabytes(size) for size in found.ladder.sizes)
        gpus = options.parallelism.ranks
        together = f", of {gpus_of(gpus)} together," if gpus > 1 else ""
        each = " of each replica" if copies_of(options) > 1 else ""
        told.append(f"Sizes of host memory{each}{together} that were tried: {sizes}.")
    elif device_is_enough(
        found.curves.lru, found.trace.jobs.input_tokens, found.settings.core.device_pages[0]
    ):
        told.append(
            "No host memory was tried, since the device alone hits all that repeats, but for less "
            "than a point of hit rate (--host-bytes tries some)."
        )
    if found.rate < 1:
        told.append(_sampling(found))
    told += errors_together((one.get("expected_error") for one in found.points), sized=True)
    return [*told, *moved_times(found.moved), TAILS]


def arrivals_told(found: Study | Decision | Splits, more: str = "") -> list[str]:
    if not found.options.spread:
        return []
    coarse = "The clock of the trace is coarse: requests" if found.spread else "Requests"
    return [f"{coarse} arrive at random times until the next timestamp (--spread, --seed){more}."]


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
        "prefix, as a shorter trace of the same traffic."
    )
    if error is None:
        return text
    return (
        f"{text} On the curve of hits, which is exact for the whole trace, the same part errs by "
        f"{error.mean * 100:.1f} points of hit rate on average and {error.largest * 100:.1f} at "
        "most."
    )


_OF_A_CACHE = ("working_set", "capacity", "policy", "tier_bandwidth")


def without_hits(
    verdict: Mapping[str, Any], points: Sequence[Mapping[str, Any]], served: Sequence[Served]
) -> dict[str, Any]:
    """The verdict of these points without what it says of a cache."""
    limits = [one for one in verdict["limits"] if one["resource"] not in _OF_A_CACHE]
    buys = [
        {**one, "per_unit": {**one["per_unit"], "hit_rate": None}}
        for one in verdict["buys"]
        if one["resource"] == "gpu"
    ]
    told = [*sentences(served), *map(_times, points), *(one["sentence"] for one in limits)]
    return {
        **verdict,
        "sentences": told,
        "limits": limits,
        "evidence": [fact for one in limits for fact in one["evidence"]],
        "buys": buys,
        "break_even": None,
    }


def _times(point: Mapping[str, Any]) -> str:
    """The times of a point, and how many requests keep the limits."""
    replays = point["replays"]
    times = [
        f"{name} TTFT {span(replays[f'ttft_{name}_s'], lambda one: f'{one:.2f}')} s"
        for name in ("p50", "p90")
    ]
    if replays["attained_rate"]:
        kept = span(replays["attained_rate"], lambda one: percent(one, 1))
        times.append(f"{kept} of the requests keep the limits")
    return f"{point['label']}: {', '.join(times)}."
