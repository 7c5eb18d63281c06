"""The table of measured and predicted figures, the line of a minute, sentences and the document.

Does not measure or predict. docs/watch.md says how the table is read, docs/json.md the document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..reporting.amounts import gigabytes
from ..results.record import document as plain
from ..terminal.tables import percent, table
from ..terminal.text import command_line
from .names import FIGURES, HISTOGRAMS
from .predicting import Point, Predicted
from .readings import Measured, Percentile, Reading, Times
from .scraping import Url

_LITTLE = 0.005  # of the prompt tokens
_FEW = 0.05  # of the requests
_SHOWN_TIMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "between tokens", "queue": "in the queue"}
_NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Shown:
    """All that is shown. seconds: since counting began. whole: since the server was started.
    predicted: None without a log, or as long as there is none. times: whether predicted times mean
    this server: its model was named. notes: what does not work now."""

    url: Url
    reading: Reading
    measured: Measured
    seconds: float
    whole: bool
    log: str | None
    predicted: Predicted | None
    times: bool
    restarts: int
    notes: Sequence[str]


def table_of(shown: Shown, brief: bool = False) -> RenderableType:
    """The table. brief: with fewer rows, for a terminal."""
    reading, predicted = shown.reading, shown.predicted
    name = reading.server.name
    result = table(f"{shown.url}, {name}, {_period(shown)}", "", "measured", "predicted")
    for row in _rows(shown, brief):
        result.add_row(*row)
    parts: list[RenderableType] = [result]
    if predicted is not None and predicted.more is not None and predicted.more.points:
        parts.append(_memory(shown, predicted))
    parts += [Text(f"\n{note}" if not at else note) for at, note in enumerate(shown.notes)]
    return Group(*parts)


def _period(shown: Shown) -> str:
    if shown.whole:
        return "since it was started"
    return str(timedelta(seconds=int(shown.seconds)))


def _rows(shown: Shown, brief: bool) -> Iterator[tuple[str, str, str]]:
    measured, predicted = shown.measured, shown.predicted
    counters, gauges = measured.counters, shown.reading.gauges

    def count(name: str, value: int | None = None) -> tuple[str, str, str]:
        other = _NOTHING if value is None else f"{value:,}"
        return (FIGURES[name], f"{counters[name]:,}" if name in counters else _NOTHING, other)

    of_log: tuple[int | None, ...] = (None, None, None)
    if predicted is not None:
        of_log = (predicted.requests, predicted.input_tokens, _hits(predicted))
    asked = "asked_tokens" if "asked_tokens" in counters else "prompt_tokens"
    for name, value in zip(("requests", asked, "hit_tokens"), of_log, strict=True):
        yield count(name, value)
    yield ("hit rate", _rate(measured.hit_rate), _rate(predicted.hit_rate if predicted else None))
    if measured.hit_rate is None and "hit_rate" in gauges:
        yield (FIGURES["hit_rate"], percent(gauges["hit_rate"], 1), _NOTHING)
    yield count("generated_tokens")
    for name in ("running", "waiting"):
        if name in gauges:
            yield (f"{FIGURES[name]} now", f"{gauges[name]:,.0f}", _NOTHING)
    if "usage" in gauges:
        yield (f"{FIGURES['usage']} now", percent(gauges["usage"], 1), _NOTHING)
    for name, said in _SHOWN_TIMES.items():
        if not brief or name == "ttft" or name == ("tpot" if "tpot" in measured.times else "itl"):
            yield from list(_time_rows(name, said, shown))[: 3 if brief else None]


def _time_rows(name: str, said: str, shown: Shown) -> Iterator[tuple[str, str, str]]:
    have = shown.measured.times.get(name)
    told = shown.predicted.times.get(name) if shown.predicted and shown.times else None
    if have is None:
        return
    yield (f"{said}, mean", _seconds(have.mean), _seconds(told.mean) if told else _NOTHING)
    for label, value in have.by_percent.items():
        of_model = _seconds(getattr(told, label)) if told else _NOTHING
        yield (f"{said}, {label}", _bucket(value), of_model)


def _hits(predicted: Predicted) -> int | None:
    tokens = predicted.device_hit_tokens + predicted.host_hit_tokens
    return tokens if predicted.identity else None


def _rate(value: float | None) -> str:
    return _NOTHING if value is None else percent(value, 1)


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _bucket(value: Percentile) -> str:
    """The percentile, and the bucket of the server that has it."""
    if value.value is None or value.high is None:
        return f"over {_seconds(value.low)}"
    if value.low <= 0:
        return f"under {_seconds(value.high)}"
    return f"{_seconds(value.value)} ({_seconds(value.low)} to {_seconds(value.high)})"


def _memory(shown: Shown, predicted: Predicted) -> Table:
    """Hits with more memory. Bytes only where the model was named."""
    assert predicted.more is not None
    result = table("With more memory (LRU, exact)", "cache in tokens", "bytes", "hit rate", "")
    now = predicted.more.now
    for point in (now, *predicted.more.points):
        tokens = point.pages * predicted.page_tokens
        size = gigabytes(point.pages * predicted.page_bytes) if shown.times else _NOTHING
        more = f"{point.pages / now.pages:.3g} x" if point is not now else "as now"
        rate = percent(point.hit_tokens / predicted.input_tokens, 1)
        result.add_row(f"{tokens:,}", size, rate, more)
    return result


def line_of(shown: Shown, last: Measured) -> str:
    """One line, for a log. last: what happened since the line before."""
    gauges, times = shown.reading.gauges, last.times
    parts = [f"{_period(shown)}: {last.counters.get('requests', 0):,} requests"]
    if last.hit_rate is not None:
        parts.append(f"hit rate {percent(last.hit_rate, 1)}")
    parts += [f"{name} {gauges[name]:,.0f}" for name in ("running", "waiting") if name in gauges]
    for name, said in _SHOWN_TIMES.items():
        if name in times:
            parts.append(f"{said} p50 {_bucket(times[name].by_percent['p50'])}")
    if shown.predicted is not None:
        rates = _rate(shown.predicted.measured_rate), _rate(shown.predicted.hit_rate)
        requests = f"{shown.predicted.requests:,} requests"
        parts.append(f"of the first {requests} measured {rates[0]}, predicted {rates[1]}")
    return ", ".join(parts)


def missing_of(reading: Reading) -> list[str]:
    """The figures that the page does not have, with the names that versions have for them."""
    server = reading.server
    return [
        f"The page has no {HISTOGRAMS.get(name, FIGURES[name])}: {server.said(name)}."
        for name in reading.missing
    ]


def sentences(shown: Shown) -> list[str]:
    """What was found, and what more memory would have brought."""
    measured, predicted = shown.measured, shown.predicted
    told = []
    requests = measured.counters.get("requests")
    if not requests and not (predicted and predicted.requests):
        return ["No request ended in this time, so nothing can be said."]
    if measured.hit_rate is not None:
        asked = measured.counters["asked_tokens"]
        told.append(
            f"The server hit {percent(measured.hit_rate, 1)} of {asked:,} prompt tokens"
            + _beside(shown)
        )
    if predicted is None:
        if shown.log is None:
            told.append(
                "Without --log nothing says which prompts begin alike, so nothing is predicted, "
                "and nobody knows what more memory would have brought."
            )
        else:
            told.append(
                "Nothing was predicted: the log has no request of this time that could be read. It "
                "has to be the log of this server, with the token ids of the prompts."
            )
        return told
    told += _doubts(shown, predicted)
    told += _brought(shown, predicted)
    return told


def _beside(shown: Shown) -> str:
    predicted = shown.predicted
    if predicted is None or predicted.hit_rate is None:
        return "."
    return (
        f", and the model {percent(predicted.hit_rate, 1)} of {predicted.input_tokens:,}, with "
        f"{predicted.device_pages * predicted.page_tokens:,} tokens of cache."
    )


def _doubts(shown: Shown, predicted: Predicted) -> Iterator[str]:
    """Why measured and predicted figures may not be of the same traffic."""
    requests = shown.measured.counters.get("requests")
    if requests is not None and abs(requests - predicted.requests) > _FEW * max(1, requests):
        yield (
            f"The server ended {requests:,} requests in this time, and the log has "
            f"{predicted.requests:,}: the figures are not of the same traffic."
        )
    if predicted.unlogged:
        yield (
            f"The log lacks {predicted.unlogged:,} requests that the server had before, so the "
            "replay begins with a colder cache."
        )
    if shown.reading.engines > 1:
        yield (
            f"The server has {shown.reading.engines} engines, each with a cache of its own; the "
            "model has one cache as large as all of them."
        )
    if shown.reading.capacity_tokens is None:
        yield (
            "The page does not say how large the cache is, so the replay has that of the model "
            "and the hardware; --device-tokens says it."
        )
    if not predicted.identity:
        yield "The log has lengths only: no hits can be predicted."
    if shown.times:
        yield f"Predicted times are of {predicted.model} on {predicted.hardware}. {predicted.error}"
    else:
        yield "Give --model and --hardware for predicted times and for bytes."
    yield from predicted.notes


def _brought(shown: Shown, predicted: Predicted) -> Iterator[str]:
    more = predicted.more
    if more is None:
        return
    now = more.now
    last = more.points[-1] if more.points else now
    gained = last.hit_tokens - now.hit_tokens
    if more.enough is None or gained < _LITTLE * predicted.input_tokens:
        yield (
            "More memory would have brought "
            + (f"at most {gained:,} prompt tokens" if gained else "nothing")
            + ": an LRU cache of this size hits what repeats, and the other prompt tokens are new."
        )
        return
    yield _with(shown, predicted, more.enough, now)
    if more.enough.hit_tokens < last.hit_tokens:
        yield (
            f"No cache hits more than {percent(last.hit_tokens / predicted.input_tokens, 1)}; that "
            f"takes {_size(shown, predicted, last)}."
        )
    assert shown.log is not None
    model = predicted.model if shown.times else "MODEL"
    words = ["hicache", "size", shown.log, "--model", model, "--slo", "ttft=2s,tpot=50ms"]
    yield f"{command_line(words)} says what that does to times, and what it costs."


def _with(shown: Shown, predicted: Predicted, point: Point, now: Point) -> str:
    total = predicted.input_tokens
    fewer = point.hit_tokens - now.hit_tokens
    return (
        f"With {_size(shown, predicted, point)} of cache, {point.pages / now.pages:.3g} times as "
        f"much, an LRU cache would have hit {percent(point.hit_tokens / total, 1)} instead of "
        f"{percent(now.hit_tokens / total, 1)}: {fewer:,} prompt tokens less to compute."
    )


def _size(shown: Shown, predicted: Predicted, point: Point) -> str:
    tokens = f"{point.pages * predicted.page_tokens:,} tokens"
    if not shown.times:
        return tokens
    return f"{tokens} ({gigabytes(point.pages * predicted.page_bytes)})"


def document(shown: Shown) -> dict[str, Any]:
    """The result as JSON values."""
    reading, measured = shown.reading, shown.measured
    return {
        "kind": "watch",
        "url": str(shown.url),
        "server": reading.server.name,
        "engines": reading.engines,
        "restarts": shown.restarts,
        "seconds": round(shown.seconds, 3),
        "since_start": shown.whole,
        "log": shown.log,
        "cache": {
            "page_tokens": reading.page_tokens,
            "device_tokens": reading.capacity_tokens,
            "host_tokens": reading.gauges.get("host_tokens"),
        },
        "measured": {
            **{name: measured.counters.get(name) for name in _COUNTED},
            "hit_rate": measured.hit_rate,
            "now": {name: reading.gauges.get(name) for name in ("running", "waiting", "usage")},
            "latency_s": {name: _times(measured.times.get(name)) for name in HISTOGRAMS},
        },
        "predicted": _predicted(shown),
        "missing": [
            {"figure": name, "names": [one.name for one in reading.server.names.get(name, ())]}
            for name in reading.missing
        ],
        "notes": list(shown.notes),
        "conclusions": sentences(shown),
    }


_COUNTED = ("requests", "asked_tokens", "hit_tokens", "generated_tokens", "preempted")


def _times(found: Times | None) -> dict[str, Any] | None:
    if found is None:
        return None
    percentiles = {
        label: {"value": one.value, "low": one.low, "high": one.high}
        for label, one in found.by_percent.items()
    }
    return {"count": found.count, "mean": found.mean, **percentiles}


def _predicted(shown: Shown) -> dict[str, Any] | None:
    found = shown.predicted
    if found is None:
        return None
    page, total = found.page_tokens, found.input_tokens

    def point(one: Point) -> dict[str, Any]:
        return {
            "pages": one.pages,
            "tokens": one.pages * page,
            "bytes": one.pages * found.page_bytes if shown.times else None,
            "hit_tokens": one.hit_tokens,
            "hit_rate": one.hit_tokens / total if total else 0.0,
        }

    more = found.more
    return {
        "requests": found.requests,
        "warming_requests": found.warming,
        "unlogged_requests": found.unlogged,
        "input_tokens": total,
        "hit_tokens": {"device": found.device_hit_tokens, "host": found.host_hit_tokens},
        "hit_rate": found.hit_rate,
        "model": found.model,
        "hardware": found.hardware,
        "engine": found.engine,
        "page_tokens": page,
        "device_pages": found.device_pages,
        "host_pages": found.host_pages,
        "latency_s": {name: plain(one) for name, one in found.times.items()}
        if shown.times
        else None,
        "memory": None
        if more is None
        else {
            "now": point(more.now),
            "enough": None if more.enough is None else point(more.enough),
            "points": [point(one) for one in more.points],
        },
    }
