"""`hicache inspect`: sizes of a trace, where its prompts part, and how much can be reused."""

import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError

from ..formats.base import NS_PER_S, Trace
from ..replaying.account import ceiling_of
from ..reporting import percent
from ..reporting.warnings import time_warnings
from ..results.record import Measured, head
from ..terminal import options as read
from ..terminal.options import option
from ..terminal.output import check_outputs, write_json
from ..terminal.streams import name
from ..terminal.tables import console, pairs, print_sentences, table
from ._options import PagedTraceOptions

_PARTINGS = 3
_MOST_TOKENS = 1 << 22  # that are looked at one by one, at up to 150 bytes and a microsecond each


@dataclass(frozen=True)
class Options(PagedTraceOptions):
    json: str | None = option(
        "also write the statistics to this file as JSON; - is stdout", *read.OUTPUT
    )


def run(options: Options, command: str) -> int:
    check_outputs({"trace": options.trace, "tokenizer": options.tokenizer}, json=options.json)
    trace = options.opened()
    result = inspect(trace, options.page_size_of(trace), to_the_token(options, trace))
    warnings = [*trace.notes, *time_warnings(trace.jobs, Fraction(1))]
    out = sys.stderr if options.json == "-" else sys.stdout
    _print(result, out)
    if warnings:
        print_sentences("Warnings", warnings, out)
    if options.json:
        write_json(options.json, head(command, complete=True) | result | {"warnings": warnings})
    return 0


def to_the_token(options: Options, trace: Trace) -> Trace | None:
    """The trace token by token; None where it has none, has too many, or cannot be read again."""
    if not trace.identity or options.block_size or trace.jobs.input_tokens > _MOST_TOKENS:
        return None
    if trace.block_size is None:
        return trace
    try:
        return replace(options, block_size=1).opened()
    except CallerError:  # it has blocks of its own
        return None


def inspect(trace: Trace, page_size: int, exact: Trace | None = None) -> dict[str, Any]:
    """What docs/json.md says of `hicache inspect`. What a trace cannot say is None. exact: the same
    trace, token by token."""
    jobs, measured = trace.jobs, trace.measured or Measured()
    prompts, total = jobs.input_lengths, jobs.input_tokens
    times = jobs.arrivals_ns[jobs.afters < 0]
    result: dict[str, Any] = {
        "path": trace.path,
        "format": trace.format,
        "block_size": trace.block_size,
        "page_size": page_size,
        "requests": len(jobs),
        "closed_loop": len(jobs) - len(times),
        "sessions": len(np.unique(jobs.sessions[jobs.sessions >= 0])) or None,
        "duration_s": float(times[-1] - times[0]) / NS_PER_S,
        "input": _lengths(prompts),
        "output": _lengths(jobs.output_lengths),
        "measured_cached_tokens": measured.cached_tokens,
        "measured_ttft_p50_s": measured.ttft_p50_s,
        "ceiling_hit_tokens": None,
        "ceiling_hit_rate": None,
        "parting": [],
        "parting_page_size": 1 if exact else page_size,
    }
    paged = trace.paged(page_size)
    if trace.identity:
        ceiling = ceiling_of(paged, whole_prompts=True)
        hits = int(ceiling.sum(dtype=np.int64))
        result |= {
            "ceiling_hit_tokens": hits,
            "ceiling_hit_rate": hits / total,
            "parting": _partings(ceiling_of(exact.paged(1), True) if exact else ceiling, prompts),
        }
    return result


def _lengths(values: NDArray[np.signedinteger[Any]]) -> dict[str, Any]:
    """Of all requests. Percentiles are observed values."""
    p50, p90 = np.percentile(values, (50, 90), method="inverted_cdf").astype(int).tolist()
    total, mean = int(values.sum(dtype=np.int64)), float(values.mean())
    return {"total": total, "mean": mean, "p50": p50, "p90": p90, "max": int(values.max())}


def _partings(ceiling: NDArray[np.int32], prompts: NDArray[np.int32]) -> list[dict[str, Any]]:
    """The tokens at which most prompts differ from all before them, in whole pages; 0 if the first
    token is new. ceiling: tokens that each has in common with one before it."""
    tokens, counts = np.unique(ceiling[1:][ceiling[1:] < prompts[1:]], return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_PARTINGS]
    pairs = zip(tokens[most].tolist(), counts[most].tolist(), strict=True)
    return [{"token": t, "requests": n, "share": n / len(prompts)} for t, n in pairs]


def _print(result: dict[str, Any], stream: Any) -> None:
    out, over_s = console(stream), result["duration_s"]
    block = f", blocks of {result['block_size']}" if result["block_size"] else ""
    rows = [
        ("file", f"{name(result['path'])} ({result['format']}{block})"),
        ("requests", f"{result['requests']:,}, {result['closed_loop']:,} of them in a closed loop"),
        ("timed arrivals", f"over {over_s:,.1f} s" if over_s else "at once, or none"),
        ("sessions", f"{result['sessions'] or 'none named'}"),
    ]
    if result["parting"]:
        places = (f"{item['token']:,} ({item['share']:.0%})" for item in result["parting"])
        size = result["parting_page_size"]
        rounded = f", rounded down to pages of {size}" if size > 1 else ""
        rows.append(("prompts part at token", ", ".join(places) + rounded))
    if (cached := result["measured_cached_tokens"]) is not None:
        share = percent(cached / result["input"]["total"], 3)
        rows.append(("cached, as measured", f"{cached:,} ({share})"))
    if (ttft_s := result["measured_ttft_p50_s"]) is not None:
        rows.append(("TTFT p50, as measured", f"{ttft_s:,.3f} s"))
    reused, size = "unknown: lengths only, nothing says what prompts share", result["page_size"]
    if (rate := result["ceiling_hit_rate"]) is not None:
        reused = f"{result['ceiling_hit_tokens']:,} tokens, {percent(rate, 3)}"
        reused += f", in pages of {max(size, result['block_size'] or 1):,}"
    rows.append(("can be reused", reused))
    out.print(pairs("Trace", rows))
    lengths = table("Per request", "", "total", "mean", "p50", "p90", "max")
    for key in ("input", "output"):
        value = result[key]
        cells = [f"{value[name]:,}" for name in ("p50", "p90", "max")]
        lengths.add_row(f"{key} tokens", f"{value['total']:,}", f"{value['mean']:,.1f}", *cells)
    out.print(lengths)
