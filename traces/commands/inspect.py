"""`hicache inspect`: statistics of a trace, and how much a cache of any size could hit.

The curve comes from stack distances (traces/curves), so it is independent of the cache that it is
compared with.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from ..curves import Curve, lru_curve
from ..formats.base import NS_PER_MS, Paged, Trace
from ..replaying.account import ceiling_of
from ..reporting.outputs import time_warnings
from ..results.record import head
from ..terminal import options as read
from ..terminal.options import option
from ..terminal.output import check_outputs, write_json
from ..terminal.streams import command_line, ignore_broken_pipe, name
from ..terminal.tables import console, pairs, percent, print_sentences, table
from ._options import PagedTraceOptions

_BAR = 30
_POINTS = 12
_SIZES = "0,64GB,256GB,1TB"
_MOST_OF_IT = 0.9
_PARTINGS = 3


@dataclass(frozen=True)
class Options(PagedTraceOptions):
    json: str | None = option(
        "also write the statistics to this file as JSON; - is stdout", *read.OUTPUT
    )


def run(options: Options, command: str) -> int:
    check_outputs({"trace": options.trace, "tokenizer": options.tokenizer}, json=options.json)
    trace = options.opened()
    inspection = inspect(trace, options.page_size_of(trace))
    out = sys.stderr if options.json == "-" else sys.stdout
    warnings = [*trace.notes, *time_warnings(trace.jobs, Fraction(1))]
    told = conclusions(inspection, options.log.words)
    with ignore_broken_pipe():
        print_inspection(inspection, out)
        if warnings:
            print_sentences("Warnings", warnings, out)
        print_sentences("In words", told, out)
    if options.json:
        found = head(command, complete=True) | asdict(inspection)
        write_json(options.json, found | {"warnings": warnings, "conclusions": told})
    return 0


@dataclass(frozen=True, slots=True)
class Lengths:
    """Statistics of one quantity over all requests. Percentiles are observed values."""

    total: int
    mean: float
    p50: int
    p90: int
    max: int


@dataclass(frozen=True, slots=True)
class Point:
    """LRU hits in a cache of `pages` pages, in file order; every prompt token may hit."""

    pages: int
    tokens: int
    hit_tokens: int
    hit_rate: float


@dataclass(frozen=True, slots=True)
class Parting:
    """A token at which prompts differ from all before them, in whole pages, and how many do. Those
    that are new from the first token on part at 0."""

    token: int
    requests: int
    share: float


@dataclass(frozen=True, slots=True)
class Inspection:
    """The statistics of a trace.

    interval_ms: between arrivals that have a time. closed_loop: requests that wait for another one.
    ceiling: hit tokens in an unbounded cache; steady: of the second half of the requests. parting:
    the most frequent places. measured: by the service. What a trace cannot say is None.
    """

    path: str
    format: str
    block_size: int | None
    page_size: int
    requests: int
    closed_loop: int
    duration_s: float
    input: Lengths
    output: Lengths
    interval_ms: Lengths
    unique_pages: int | None
    largest_request_pages: int
    ceiling_hit_tokens: int | None
    ceiling_hit_rate: float | None
    ceiling_hit_rate_steady: float | None
    lru: tuple[Point, ...]
    parting: tuple[Parting, ...]
    measured_cached_tokens: int | None
    measured_ttft_p50_s: float | None


def inspect(trace: Trace, page_size: int) -> Inspection:
    paged = trace.paged(page_size)
    jobs = trace.jobs
    prompts, total = jobs.input_lengths, jobs.input_tokens
    times = jobs.arrivals_ns[jobs.afters < 0]
    first_ns = trace.measured.ttft_p50_ns
    found = Inspection(
        path=trace.path,
        format=trace.format,
        block_size=trace.block_size,
        page_size=page_size,
        requests=len(jobs),
        closed_loop=len(jobs) - len(times),
        duration_s=float(times[-1] - times[0]) / 1e9,
        input=_lengths(prompts),
        output=_lengths(jobs.output_lengths),
        interval_ms=_lengths(np.diff(times) // NS_PER_MS),
        unique_pages=None,
        largest_request_pages=-(-int(prompts.max()) // page_size),
        ceiling_hit_tokens=None,
        ceiling_hit_rate=None,
        ceiling_hit_rate_steady=None,
        lru=(),
        parting=(),
        measured_cached_tokens=trace.measured.cached_tokens,
        measured_ttft_p50_s=None if first_ns is None else first_ns / 1e9,
    )
    return _with_hits(found, paged, total) if trace.identity else found


def _with_hits(found: Inspection, paged: Paged, total: int) -> Inspection:
    """Adds what the prompts have in common. total: tokens of all prompts."""
    prompts = paged.jobs.input_lengths
    ceiling = ceiling_of(paged, whole_prompts=True)
    half = len(prompts) // 2
    hits = int(ceiling.sum(dtype=np.int64))
    curve = lru_curve(paged)
    return replace(
        found,
        unique_pages=curve.unique,
        largest_request_pages=curve.largest,
        ceiling_hit_tokens=hits,
        ceiling_hit_rate=hits / total,
        ceiling_hit_rate_steady=float(
            ceiling[half:].sum(dtype=np.int64) / prompts[half:].sum(dtype=np.int64)
        ),
        lru=_points(curve, paged, total),
        parting=_partings(ceiling, prompts),
    )


def conclusions(result: Inspection, words: Sequence[str]) -> list[str]:
    """What the ceiling and the curve say about the memory that a cache needs. words: the options
    without which the trace cannot be read."""
    if result.ceiling_hit_rate is None:
        return [
            "The trace has lengths only: nothing says which prompts begin alike, so no hit rate "
            "can be given for any size of a cache. It can drive load: hicache replay, and "
            "hicache size --slo ttft=2s says which machine to buy."
        ]
    ceiling = percent(result.ceiling_hit_rate)
    if not result.ceiling_hit_tokens:
        return ["No request begins like an earlier one, so no cache can hit anything."]
    told = [f"No cache can hit more than {ceiling} of the prompt tokens; the rest is new."]
    least = _MOST_OF_IT * result.ceiling_hit_rate
    enough = [point for point in result.lru if point.hit_rate >= least]
    if enough:
        half = "; half of its size does not" if len(enough) < len(result.lru) else ""
        told.append(
            f"An LRU cache of {enough[0].tokens:,} tokens hits {percent(enough[0].hit_rate)}, nine "
            f"tenths of that or more{half}."
        )
    told.append(
        f"Try {command_line(['hicache', 'sweep', result.path, *words, '--host-bytes', _SIZES])}, "
        "which says what this is in gigabytes of a model, and in time to first token."
    )
    return told


def print_inspection(result: Inspection, stream: TextIO) -> None:
    out = console(stream)
    block = f", blocks of {result.block_size}" if result.block_size else ""
    rows = [
        ("file", f"{name(result.path)} ({result.format}{block})"),
        (
            "requests",
            f"{result.requests:,}, {result.closed_loop:,} of them in a closed loop",
        ),
        ("timed arrivals", f"over {result.duration_s:,.1f} s"),
    ]
    if result.unique_pages is not None:
        rows.append(("unique pages", f"{result.unique_pages:,} of {result.page_size} tokens"))
    rows.append(("largest request", f"{result.largest_request_pages:,} pages"))
    if result.parting:
        places = (f"{one.token:,} ({one.share:.0%})" for one in result.parting)
        rows.append(("prompts part at token", ", ".join(places)))
    if (cached := result.measured_cached_tokens) is not None:
        rows.append(("cached, as measured", f"{cached:,} ({percent(cached / result.input.total)})"))
    if (ttft_s := result.measured_ttft_p50_s) is not None:
        rows.append(("TTFT p50, as measured", f"{ttft_s:,.3f} s"))
    out.print(pairs("Trace", rows))
    lengths_table = table("Per request", "", "total", "mean", "p50", "p90", "max")
    for row, lengths in (
        ("input tokens", result.input),
        ("output tokens", result.output),
        ("interval (ms)", result.interval_ms),
    ):
        cells = [f"{value:,}" for value in (lengths.p50, lengths.p90, lengths.max)]
        lengths_table.add_row(row, f"{lengths.total:,}", f"{lengths.mean:,.1f}", *cells)
    out.print(lengths_table)
    if result.ceiling_hit_rate is None or result.ceiling_hit_rate_steady is None:
        return
    chart = table("LRU hit rate, token-weighted, whole trace", "pages", "tokens", "rate", "")
    chart.columns[-1].justify = "left"
    for point in result.lru:
        _add(chart, f"{point.pages:,}", f"{point.tokens:,}", point.hit_rate)
    chart.add_section()
    _add(chart, "unbounded", "", result.ceiling_hit_rate)
    out.print(chart)
    steady = percent(result.ceiling_hit_rate_steady)
    out.print(f"Unbounded, last 50 % of the requests: {steady}")


def _add(chart: Table, pages: str, tokens: str, rate: float) -> None:
    chart.add_row(pages, tokens, percent(rate), "#" * round(rate * _BAR))


def _partings(ceiling: NDArray[np.int32], prompts: NDArray[np.int32]) -> tuple[Parting, ...]:
    """ceiling: tokens that each prompt has in common with one before it."""
    tokens, counts = np.unique(ceiling[1:][ceiling[1:] < prompts[1:]], return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_PARTINGS].tolist()
    return tuple(
        Parting(int(tokens[at]), int(counts[at]), float(counts[at] / len(prompts))) for at in most
    )


def _points(curve: Curve, paged: Paged, total: int) -> tuple[Point, ...]:
    """Capacities in powers of two from the largest request to the whole trace; the largest few."""
    first = max(curve.largest - 1, 0).bit_length()
    last = max(curve.unique - 1, 0).bit_length()
    sizes = [1 << power for power in range(max(first, last - _POINTS + 1), last + 1)]
    return tuple(
        Point(size, size * paged.page_size, hits, hits / total)
        for size in sizes
        for hits in (curve.hit_tokens(size),)
    )


def _lengths(values: NDArray[np.signedinteger[Any]]) -> Lengths:
    if not len(values):
        return Lengths(0, 0.0, 0, 0, 0)
    p50, p90 = np.percentile(values, (50, 90), method="inverted_cdf")
    return Lengths(
        int(values.sum(dtype=np.int64)), float(values.mean()), int(p50), int(p90), int(values.max())
    )
