"""The figures of one scrape, and what happened between two of them.

Counters and histograms are sums over the engines of a server. A counter that fell was reset: what
it shows since counts. Percentiles follow from the cumulative buckets of the difference, linear
within a bucket, as `histogram_quantile` of Prometheus has them; the ends of the bucket are kept,
since nothing within it is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .names import (
    COUNT_LABELS,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    NEEDED,
    PAGE_LABELS,
    SERVERS,
    SPARE_PAGES,
    STARTED,
    TOKENS_LABEL,
    Server,
)
from .scraping import Labels, Scrape, Unread

PERCENTS = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Histogram:
    """bounds: upper ones, ascending, the last one infinite. counts: cumulative."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float

    def since(self, before: Histogram | None) -> Histogram:
        """What was observed since then, or since the server was started again."""
        if before is None or before.bounds != self.bounds:
            return self
        counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        steps = [high - low for low, high in zip([0.0, *counts], counts, strict=False)]
        if min(steps) < 0 or self.sum < before.sum:
            return self
        return Histogram(self.bounds, tuple(counts), self.sum - before.sum)


@dataclass(frozen=True, slots=True)
class Percentile:
    """Seconds. low, high: the bucket that has it. value: None in the last one, which has no end."""

    value: float | None
    low: float
    high: float | None


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of what ended. by_percent: p50, p90, p99."""

    count: int
    mean: float
    by_percent: Mapping[str, Percentile]


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of one scrape. engines: caches that the server has. missing: figures that the
    page has under no known name. odd: what was left out, in words."""

    server: Server
    counters: Mapping[str, float]
    gauges: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    engines: int
    started: float | None
    missing: tuple[str, ...]
    odd: tuple[str, ...] = ()

    @property
    def page_tokens(self) -> int | None:
        return _whole(self.gauges.get("page_tokens"))

    @property
    def capacity_tokens(self) -> int | None:
        """Of all engines together."""
        return _whole(self.gauges.get("capacity_tokens"))

    @property
    def known(self) -> int | None:
        """Requests that a log should have by now; None if the server does not count them."""
        if "requests" not in self.counters:
            return None
        under_way = sum(self.gauges.get(name, 0) for name in ("running", "waiting"))
        return int(self.counters["requests"] + under_way * (self.server.logged == "arrival"))

    def follows(self, before: Reading) -> bool:
        """Whether the server has not been started anew since that reading."""
        if before.server is not self.server or before.started != self.started:
            return False
        return all(
            self.counters[name] >= value
            for name, value in before.counters.items()
            if name in self.counters
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """What happened between two readings. counters: only those that the server has."""

    counters: Mapping[str, int]
    times: Mapping[str, Times] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float | None:
        hit, asked = (self.counters.get(name) for name in ("hit_tokens", "asked_tokens"))
        return hit / asked if hit is not None and asked else None


def read(page: Scrape) -> Reading:
    """Raises Unread if the page is of no server that is known."""
    found = [one for one in SERVERS if any(name.startswith(one.beginning) for name in page)]
    if len(found) != 1:
        what = f"those of {' and '.join(one.name for one in found)}" if found else "none of these"
        raise Unread(
            f"expected metrics of {' or '.join(one.name for one in SERVERS)}, found {what} "
            f"({len(page):,} names); name the /metrics of the server (SGLang: --enable-metrics)"
        )
    return _Page(page, found[0]).reading()


def between(before: Reading | None, after: Reading) -> Measured:
    """before: None for all since the server was started."""
    counters = {}
    for name, value in after.counters.items():
        then = before.counters.get(name, 0.0) if before is not None else 0.0
        counters[name] = int(value - then if value >= then else value)
    times = {}
    for name, histogram in after.histograms.items():
        then_had = before.histograms.get(name) if before is not None else None
        summed = times_of(histogram.since(then_had))
        if summed is not None:
            times[name] = summed
    return Measured(counters, times)


def times_of(histogram: Histogram) -> Times | None:
    """None where nothing was observed."""
    total = histogram.counts[-1]
    if total < 1:
        return None
    by_percent = {f"p{percent}": _percentile(histogram, percent) for percent in PERCENTS}
    return Times(int(total), histogram.sum / total, by_percent)


def _percentile(histogram: Histogram, percent: int) -> Percentile:
    rank = percent / 100 * histogram.counts[-1]
    place = next(at for at, count in enumerate(histogram.counts) if count >= rank)
    low = histogram.bounds[place - 1] if place else min(0.0, histogram.bounds[0])
    high = histogram.bounds[place]
    if math.isinf(high):
        return Percentile(None, low, None)
    below = histogram.counts[place - 1] if place else 0.0
    part = (rank - below) / (histogram.counts[place] - below)
    return Percentile(low + (high - low) * part, low, high)


class _Page:
    """A page, and what it says of one kind of server."""

    def __init__(self, page: Scrape, server: Server) -> None:
        self._page, self._server = page, server
        self._odd: list[str] = []

    def reading(self) -> Reading:
        gauges = {**self._settings(), **dict(self._sums(GAUGES))}
        counters = dict(self._sums(COUNTERS))
        histograms = dict(self._histograms())
        engines = self._engines()
        for name in ("usage", "hit_rate", "page_tokens"):
            if name in gauges:  # a mean, not a sum
                gauges[name] /= self._places(name)
        started = self._page.get(STARTED, {}).get(())
        missing = tuple(name for name in NEEDED if not self._has(name))
        return Reading(
            *(self._server, counters, gauges, histograms, engines, started),
            *(missing, tuple(self._odd)),
        )

    def _named(self, figure: str, end: str = "") -> str:
        """The name that the page has; "" for none."""
        known = self._server.names.get(figure, ())
        return next((one.name + end for one in known if one.name + end in self._page), "")

    def _has(self, figure: str) -> bool:
        return bool(self._named(figure, "_bucket" if figure in HISTOGRAMS else ""))

    def _places(self, figure: str) -> int:
        return len(self._page.get(self._named(figure), {})) or 1

    def _sums(self, figures: Mapping[str, str]) -> Iterator[tuple[str, float]]:
        for figure in figures:
            name = self._named(figure)
            values = [*self._page.get(name, {}).values()]
            if not values and (not name or figure in GAUGES):
                continue
            if all(math.isfinite(one) and one >= 0 for one in values):
                yield figure, sum(values)
            else:
                self._odd.append(f"{name}: expected numbers of at least 0, found others.")

    def _histograms(self) -> Iterator[tuple[str, Histogram]]:
        for figure in HISTOGRAMS:
            name = self._named(figure, "_bucket")
            if not self._page.get(name):
                continue
            counts = _buckets(self._page[name])
            sums = [*self._page.get(f"{name.removesuffix('bucket')}sum", {}).values()]
            if counts is None or not sums or not all(map(math.isfinite, sums)):
                self._odd.append(
                    f'{name}: expected buckets that ascend to le="+Inf" and a sum, found others.'
                )
                continue
            yield figure, Histogram(tuple(counts), tuple(counts.values()), sum(sums))

    def _settings(self) -> dict[str, float]:
        """The size of the cache, of all engines, and of its pages, from labels."""
        rows = [
            dict(labels) for one in self._server.info for labels in self._page.get(one.name, {})
        ]
        spare = SPARE_PAGES.get(self._server.name, 0)
        pages = [_first(row, PAGE_LABELS) for row in rows]
        sizes = []
        for row, page in zip(rows, pages, strict=True):
            count = _first(row, COUNT_LABELS)
            whole = _first(row, (TOKENS_LABEL,)) or count * page
            sizes.append(whole - spare * page if page else 0)
        found: dict[str, float] = {}
        if pages and pages[0]:
            found["page_tokens"] = pages[0]
        if sizes and all(size > 0 for size in sizes):
            found["capacity_tokens"] = sum(sizes)
        return found

    def _engines(self) -> int:
        """How many caches the server has: by the labels of its queue."""
        labels = self._page.get(self._named("running"), {})
        return len({_rank(one) for one in labels}) or 1


def _rank(labels: Labels) -> str:
    """The number of an engine of several."""
    found = dict(labels)
    return found.get("engine", found.get("dp_rank", ""))


def _buckets(values: Mapping[Labels, float]) -> dict[float, float] | None:
    """Cumulative counts by upper bound, summed; None if they are none."""
    found: dict[float, float] = {}
    for labels, count in values.items():
        try:
            bound = float(dict(labels)["le"])
        except (KeyError, ValueError):
            return None
        found[bound] = found.get(bound, 0.0) + count
    ordered = dict(sorted(found.items()))
    counts = [*ordered.values()]
    if not counts or math.inf not in ordered or not all(map(math.isfinite, counts)):
        return None
    steps = [high - low for low, high in zip([0.0, *counts], counts, strict=False)]
    return ordered if min(steps) >= 0 else None


def _first(row: Mapping[str, str], names: Sequence[str]) -> int:
    """The first of these labels that is a number; 0 for none."""
    for name in names:
        text = row.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 16:
            return int(text)
    return 0


def _whole(value: float | None) -> int | None:
    return int(value) if value else None
