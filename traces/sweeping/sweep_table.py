"""The points of a sweep as a table with bars, and which are best in words.

Does not choose them; see outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from ..deciding.chance import span
from ..expected.words import together
from ..replaying.options import plain
from ..reporting.amounts import gigabytes
from ..terminal.streams import print_error
from ..terminal.tables import console, percent, table
from .grid import Axis
from .outcome import Outcome, best, front, ordered

MOST_ROWS = 60
_BAR = 18  # characters of the longest bar
_TIERS = "#+."  # device, host, storage
_FIGURES = {
    "hit_rate": "hit rate",
    "ttft_p90_s": "p90 time to first token",
    "goodput_requests_per_s": "goodput",
}


def print_outcomes(
    title: str,
    outcomes: Sequence[Outcome],
    stream: TextIO,
    axes: Sequence[Axis] = (),
    ranked: bool = True,
) -> None:
    """The table. axes: options with a column each; without any, a point has its label. ranked:
    best first, and * marks the front; otherwise in their order."""
    if not outcomes:
        return
    rows = ordered(outcomes) if ranked else outcomes
    kept = {one.key for one in front(outcomes)} if ranked else set()
    timed = any(one.ttft_p90_s is not None for one in outcomes)
    served = any(one.goodput_requests_per_s is not None for one in outcomes)
    hits = any(one.hit_rate is not None for one in outcomes)
    named = [axis.name.replace("_", "-") for axis in axes] or ["point"]
    typed = [{repr(plain(one.value)): one.text for one in axis.values} for axis in axes]
    columns = [*named, *[""] * ranked, *["hits"] * hits, *["p50 s", "p90 s"] * timed]
    bars = ["# device + host . storage"] * hits
    result = table(title, *columns, *["goodput/s"] * served, *bars)
    for column in result.columns[: len(named)]:
        column.justify = "left"
    if hits:
        result.columns[-1].justify = "left"
    most = max((one.hit_rate or 0.0 for one in outcomes), default=0.0) or 1.0
    for one in rows[:MOST_ROWS]:
        read = [repr(one.point[axis.name]) if axis.name in one.point else "" for axis in axes]
        cells = [texts.get(own, own) for texts, own in zip(typed, read, strict=True)]
        cells = cells or [one.label]
        cells += ["*" if one.key in kept else ""] * ranked
        cells += [_rate(one.hit_rate)] * hits
        if timed:
            cells += [_ranged(one, name, _seconds) for name in ("ttft_p50_s", "ttft_p90_s")]
        cells += [_ranged(one, "goodput_requests_per_s", _number)] * served
        result.add_row(*cells, *[_bar(one, most)] * hits)
    console(stream).print(result)
    if len(rows) > MOST_ROWS:
        print(f"{len(rows) - MOST_ROWS} more points are in the file", file=stream)


def conclusions(outcomes: Sequence[Outcome]) -> list[str]:
    """The best points and the front, in sentences."""
    if not outcomes:
        return ["No point was replayed to its end."]
    told = []
    for name, one in best(outcomes).items():
        told.append(f"Best {_FIGURES[name]}: {_told(name, one)} with {one.label}.")
    kept = front(outcomes)
    if len(kept) < len(outcomes):
        told.append(
            f"{len(kept)} of {len(outcomes)} points (*) are on the front: no other point is at "
            "least as good in GPUs, host memory and every figure, and better in one."
        )
    busy = sum(one.overloaded for one in outcomes)
    if busy:
        told.append(
            f"At {busy} of {len(outcomes)} points the trace offers more than the machine can do: "
            "their times to first token are mostly queueing, and a lower --speed shows the cache."
        )
    return [*told, *together(one.expected_error for one in outcomes)]


def _told(name: str, one: Outcome) -> str:
    memory = f", {gigabytes(one.host_bytes)} of host memory" if one.host_bytes else ""
    if name == "hit_rate":
        return f"{percent(one.hit_rate or 0.0, 1)}{memory}"
    if name == "ttft_p90_s":
        return f"{one.ttft_p90_s:,.2f} s{memory}"
    return f"{one.goodput_requests_per_s:,.2f} requests per second{memory}"


def tell_lines(lines: Sequence[str]) -> None:
    """Every line of an error but the last one, which the command raises."""
    for line in lines[:-1]:
        print_error(line)


def best_document(outcomes: Sequence[Outcome]) -> Mapping[str, str]:
    """The labels of the best points."""
    return {name: one.label for name, one in best(outcomes).items()}


def _ranged(one: Outcome, name: str, told: Callable[[float | None], str]) -> str:
    """A figure; of several replays the median and the range."""
    values = (one.replays or {}).get(name)
    return span(values, told) if values else told(getattr(one, name))


def _rate(rate: float | None) -> str:
    return "" if rate is None else percent(rate, 1)


def _seconds(time_s: float | None) -> str:
    if time_s is None:
        return ""
    return f"{time_s:,.2f}" if time_s < 1000 else f"{time_s:,.0f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _bar(one: Outcome, most: float) -> str:
    ends = [0]
    total = 0.0
    for rate in one.tier_rates:
        total += rate
        ends.append(round(total / most * _BAR))
    drawn = zip(_TIERS, ends, ends[1:], strict=False)
    return "".join(mark * (end - begin) for mark, begin, end in drawn)
