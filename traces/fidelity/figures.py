"""What the published figures of a row measure: quantity, statistic and unit, from their names.

`mean_ttft_ms`, `ttft_ms_p50` and `ttft_mean_ms` are spellings of different sources. Of each
quantity one figure of a row is judged: the first of a fixed order of statistics. The others are
shown. Does not predict anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .rows import Row

TTFT, TPOT, THROUGHPUT, HITS = "ttft", "tpot", "throughput", "hit_rate"
E2E, COPY, KERNEL = "e2e", "bandwidth", "kernel"
JUDGED = (TTFT, TPOT, THROUGHPUT, HITS, COPY, KERNEL)

_MS, _S = 1e-3, 1.0
_STATISTICS = ("mean", "median", "p50", "p90", "p95", "p99")
_ORDER = (
    *(("ttft", "mean"), ("ttft", "median")),
    *(("tpot", "mean"), ("itl", "mean"), ("tpot", "median"), ("itl", "median")),
    *(("output_tok_s", ""), ("total_tok_s", ""), ("input_tok_s", ""), ("req_s", "")),
)
_QUANTITY = {
    "ttft": TTFT,
    "tpot": TPOT,
    "itl": TPOT,
    "output_tok_s": THROUGHPUT,
    "total_tok_s": THROUGHPUT,
    "input_tok_s": THROUGHPUT,
    "req_s": THROUGHPUT,
    "e2e": E2E,
    "duration": E2E,
}
_RATES = re.compile(r"(output_tok_s|total_tok_s|input_tok_s|req_s)(_per_gpu)?")
_TIMES = re.compile(r"(?:.*_)?(ttft|tpot|itl|e2e)(?:_|$).*")
_DURATIONS = ("duration_s", "elapsed_s", "elapsed_seconds_median")


@dataclass(frozen=True, slots=True)
class Figure:
    """One published figure.

    name       the field of the row. quantity: one of the names above.
    what       finer than the quantity: ttft, tpot, itl, e2e, duration, output_tok_s, ...
    statistic  mean, median, p90, p95 or p99; "" for a rate or a duration of the whole run.
    value      in seconds, per second, or a part of 1.
    phase      the part of the run: "bs1" (a run of its own, one request at a time), "cold",
               "warm"; "" for the run.
    judged     whether medians count it.
    """

    name: str
    quantity: str
    what: str
    statistic: str
    value: float
    phase: str = ""
    judged: bool = False


def figures_of(row: Row) -> tuple[Figure, ...]:
    """The times and rates of a serving run. One of each quantity and phase is judged."""
    found = list(_serving(row))
    best: dict[tuple[str, str], int] = {}
    for place, figure in enumerate(found):
        if (figure.what, figure.statistic) in _ORDER:
            key = figure.quantity, figure.phase
            if key not in best or _rank(figure) < _rank(found[best[key]]):
                best[key] = place
    for place in best.values():
        found[place] = replace(found[place], judged=True)
    return tuple(found)


def _rank(figure: Figure) -> int:
    return _ORDER.index((figure.what, figure.statistic))


def _serving(row: Row) -> Iterator[Figure]:
    for name, value in row.metrics.items():
        if isinstance(value, list):
            continue
        if rate := _RATES.fullmatch(name):
            times = row.gpu_count if rate[2] and row.gpu_count else 1
            yield Figure(name, _QUANTITY[rate[1]], rate[1], "", value * times)
        elif name in _DURATIONS:
            yield Figure(name, E2E, "duration", "", value)
        elif (time := _TIMES.fullmatch(name)) and not _fitted(name):
            yield Figure(
                name,
                _QUANTITY[time[1]],
                time[1],
                _statistic(name),
                value * (_MS if "_ms" in name else _S),
                _phase(name),
            )


def _fitted(name: str) -> bool:
    """Coefficients and points of a published fit; see decode over context."""
    return "intercept" in name or "per_context" in name or "_at_" in name


def _statistic(name: str) -> str:
    for one in _STATISTICS:
        if one in name.split("_"):
            return "median" if one == "p50" else one
    return "mean"


def _phase(name: str) -> str:
    return next((one for one in ("cold", "warm", "bs1") if one in name.split("_")), "")
