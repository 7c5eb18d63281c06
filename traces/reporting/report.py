"""What a replay prints, for people: 80 columns, no colour when piped, one screen unless verbose."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from msgspec.structs import astuple
from rich.table import Table
from rich.text import Text

from hicache.core.components import residency
from hicache.storage.base import Losses

from ..error_bars import row as error_row
from ..formats.base import Trace
from ..replaying.config import ReplayConfig
from ..replaying.playing import Play
from ..replaying.traffic import NS_PER_S
from ..results.record import NOT_FOLLOWED, Output, Result, Share, Times, document
from ..terminal.streams import name as shown
from ..terminal.tables import console, pairs, table
from . import percent, reason_name
from .results import requests_of

Rows = list[tuple[str, str]]
_MOST = 4  # stages, reasons of loss: in one report unless verbose
_HITS = "hits: one request at a time, no clock, a complete hit counts fully"


def print_report(
    trace: Trace,
    settings: ReplayConfig,
    result: Result,
    verbose: bool = False,
    stream: TextIO | None = None,
) -> None:
    """result: the figures of the run. verbose: all of them, else at most 45 lines."""
    out = console(stream)
    if result.interrupted:
        served = f"{result.served_requests:,} of {len(trace.jobs):,} requests"
        out.print(Text.assemble(("Interrupted.", "bold"), f" This report covers {served}.\n"))
    out.print(sentence(result))
    out.print(pairs("Replay", _setting(trace, settings, verbose)))
    out.print(_hits(settings, result, verbose))
    if result.latency_s is not None and result.output is not None:
        out.print(_latency(result, result.latency_s, result.output, verbose))
    out.print(pairs("Result", [*_result(result, verbose)]))


def sentence(result: Result) -> str:
    """The one to forward."""
    share = result.total
    text = f"{percent(share.hit_rate, 1)} of the prompt tokens hit"
    text += f", at most {percent(share.ceiling_rate, 1)} could"
    if not result.trace.identity:
        text = "The trace does not say what could hit"
    return text + (f"; TTFT p90 {result.latency_s.ttft.p90:,.3g} s." if result.latency_s else ".")


# -- what was played


def _setting(trace: Trace, settings: ReplayConfig, verbose: bool) -> Rows:
    core, engine, timed = settings.core, settings.engine, settings.mode == "timed"
    model, ranks, storage = settings.model, settings.parallelism, settings.storage
    rows = [
        ("trace", f"{shown(trace.path)} ({trace.format})"),
        ("requests", f"{len(trace.jobs):,} with {trace.jobs.input_tokens:,} input tokens"),
        *trace.load_rows,
        *_sizes(settings),
    ]
    if storage is not None:
        link, speed = storage.options, "no clock"
        size = f"{link.size_bytes / 1e9:,.4g} GB" if link.size_bytes else "no limit"
        if timed:
            speed = f"{link.read_bytes_per_s / 1e9:g} GB/s read"
            speed += f", {link.write_bytes_per_s / 1e9:g} written"
        least = f"{core.prefetch_threshold_tokens:,} tokens or more"
        rows.append(("storage", f"{shown(storage.address)}: {size}, {speed}"))
        rows.append(("prefetch", f"{storage.policy}, {least}"))
    if settings.flushed:
        tiers = " and ".join(tier.name.lower() for tier in settings.flushed)
        rows.append(("rounds", f"{tiers} emptied between rounds"))
    each = " per rank" if settings.page_ranks * ranks.pp > 1 else ""
    page = f"{settings.rank_page_bytes[0]:,} bytes a page{each}, {model.kv_dtype}"
    rows.append(("model", f"{model.name}, {page}"))
    rows.append(_hardware(settings) if timed else ("mode", _HITS))
    if timed:
        rows.append(("engine", _engine(settings)))
    if verbose:
        weights = _bytes(settings.weight_bytes, ranks.ranks, model.weight_bytes)
        passes = f"{engine.token_budget:,} tokens in a pass, {engine.max_running} running"
        rows += [
            ("weights", f"{weights}, {model.weight_dtype}"),
            ("page size", f"{core.page_size:,} tokens"),
            ("policy", f"{core.eviction_policy}, {core.write_policy}"),
            *([("window", f"{settings.pools.window:,} tokens")] if settings.pools.window else []),
            *([("scheduler", f"{engine.order}, {passes}")] if timed else []),
            *([("times", shown(settings.time_model.label))] if timed else []),
        ]
    return rows


def _sizes(settings: ReplayConfig) -> Iterator[tuple[str, str]]:
    """A row for each pool: how large it is, and why. The first component's
    rows have only the tier's name."""
    core, pools = settings.core, settings.pools
    for tier, sizes, rules in (
        ("device", core.device_pages, pools.device_rules),
        ("host", core.host_pages, pools.host_rules),
    ):
        for place, pages in enumerate(sizes if any(sizes) else sizes[:1]):
            name = f"  {core.components[place]}" if place else tier
            yield name, _pool(place, pages, settings, rules[place])
    if pools.interval:
        where = "at ends of passes, and where a prompt leaves what is known"
        if not pools.branch_states:
            where = "at ends of passes alone: a page as large as a state, as vLLM's source says"
        yield "states", f"every {pools.interval:,} tokens, {where}"
    if others := " and ".join(core.components[1:]):
        yield "no reference", f"for hits of {others}: they follow from what this cache stores"


def _pool(place: int, pages: int, settings: ReplayConfig, rule: str) -> str:
    if not pages:
        return "none"
    core, ranks = settings.core, settings.parallelism
    sizes = settings.rank_page_bytes, settings.page_bytes
    each, total = (pages * size[place] // ranks.attention_dp for size in sizes)
    amount = f"{_bytes(each, ranks.ranks, total * ranks.tp)} ({rule})"
    if residency(core.components[place]) == "state":
        return f"{pages:,} states, {amount}"
    return f"{pages:,} pages, {pages * core.page_size:,} tokens, {amount}"


def _bytes(each: int, ranks: int, total: int) -> str:
    """Bytes of one rank, and of all where there are several."""
    if ranks == 1:
        return _rounded(total)
    return f"{_rounded(each)} a rank, {_rounded(total)} on {ranks} ranks"


def _rounded(size: int) -> str:
    if size >= 10**12:
        return f"{size / 1e12:,.2f} TB"
    return f"{size / 1e9:,.1f} GB" if size >= 10**8 else f"{size / 1e6:,.1f} MB"


def _hardware(settings: ReplayConfig) -> tuple[str, str]:
    """The link is that of one rank, in one direction, and what copies reach of it."""
    profile, ranks = settings.hardware, settings.parallelism.ranks
    each = " per rank" if ranks > 1 else ""
    link = f"host link {profile.reached_link_bytes_per_s / 1e9:.1f} GB/s{each}"
    source = f"{profile.link_permille / 10:g}% of its peak"
    source = "measured copies" if profile.curves else source
    members = settings.fleet.members if settings.fleet else 1
    several = f"{members} replicas of " if members > 1 else ""
    return "hardware", f"{several}{ranks} x {profile.name}, {link} each way ({source})"


def _engine(settings: ReplayConfig) -> str:
    """The engine, and which version stands for one that is not known."""
    profile, ranks = settings.engine.profile, settings.parallelism
    spread = f", experts over {ranks.ep} ranks" if ranks.ep > 1 else ""
    if ranks.attention_dp > 1:
        spread += f", attention in {ranks.attention_dp} groups of {ranks.attention_tp}"
    if ranks.dcp > 1:
        spread += f", tokens divided among {ranks.dcp} ranks"
    return shown(f"{profile.label}{spread}{f' ({profile.note})' if profile.note else ''}")


# -- hits, times, transfers


def _hits(settings: ReplayConfig, result: Result, verbose: bool) -> Table:
    full, steady, measured = result.total, result.steady, result.measured
    made = table("Prompt tokens", "", "whole trace", "", "last 50 %", "")
    counts: dict[str, Callable[[Share], int]] = {
        "device hits": lambda share: share.hit_tokens.device,
        "host hits": lambda share: share.hit_tokens.host,
        "storage hits": lambda share: share.hit_tokens.storage,
        "computed": lambda share: share.computed_tokens,
        "  first seen": lambda share: share.first_seen_tokens,
        "  evicted or not ready": lambda share: share.lost_tokens,
    }
    if settings.storage is None:
        del counts["storage hits"]  # no such tier
    for name, read in counts.items():
        each = ((read(share), share.rate(read(share))) for share in (full, steady))
        made.add_row(name, *(cell for tokens, rate in each for cell in _tokens(tokens, rate)))
    lost = [item for item in result.lost_by_reason.items() if item[0] != NOT_FOLLOWED]
    others = settings.core.components[1:]
    for reason, tokens in lost if verbose else lost[:_MOST]:
        name = reason_name(reason)
        if reason in others:
            name = f"{reason}: no {'state' if residency(reason) == 'state' else 'window'}"
        made.add_row(f"    {name}", *_tokens(tokens, full.rate(tokens)))
    rates: dict[str, Callable[[Share], float]] = {
        "hit rate, token-weighted": lambda share: share.hit_rate,
        "ceiling, token-weighted": lambda share: share.ceiling_rate,
    }
    for name, rate in rates.items():
        made.add_row(name, "", percent(rate(full), 3), "", percent(rate(steady), 3))
    if measured and measured.cached_tokens is not None:
        cached = measured.cached_tokens
        made.add_row("measured in the log", *_tokens(cached, cached / result.trace.input_tokens))
    return made


def _tokens(tokens: int, rate: float) -> tuple[str, str]:
    return f"{tokens:,}", percent(rate, 3)


def _latency(result: Result, times: Times, output: Output, verbose: bool) -> Table:
    measured = result.measured
    made = table("Latency (virtual time)", "", "mean", "p50", "p90", "p95", "p99")
    for name, spread, scale, unit, always in (
        ("time to first token", times.ttft, 1.0, "s", True),
        ("  in the queue", times.queue, 1.0, "s", True),
        ("  waiting for loads", times.load, 1.0, "s", False),
        ("  computing", times.compute, 1.0, "s", False),
        ("time per output token", times.tpot, 1e3, "ms", True),
        ("time between two tokens", times.itl, 1e3, "ms", False),
    ):
        if always or verbose:
            cells = (f"{value * scale:,.3f}" for value in astuple(spread))
            made.add_row(f"{name} ({unit})", *cells)
    if measured and measured.ttft_p50_s is not None:
        made.add_row("TTFT measured in the log (s)", "", f"{measured.ttft_p50_s:,.3f}")
    made.add_row("output tokens per second", f"{output.tokens_per_s:,.1f}")
    if verbose:
        made.add_row("makespan (s)", f"{times.makespan:,.1f}")
    return made


# -- the result


def _result(result: Result, verbose: bool) -> Iterator[tuple[str, str]]:
    if result.limit is not None:
        yield "limits", result.limit.text
        for value in result.limit.tries:
            yield "try", value
    if (load := result.load) is not None:
        yield "at once", f"{load.running_mean:,.1f} on average, {load.running_most:,} most"
    if result.refused:
        largest = sorted(result.refused.items(), key=lambda item: (-item[1], item[0]))
        yield "retries", ", ".join(f"{n:,} {why.replace('_', ' ')}" for why, n in largest)
    if verbose:
        ways = {way: result.transfers[way].bytes_total / 1e9 for way in ("d2h", "h2d")}
        yield "copied", f"{ways['d2h']:,.2f} GB to host, {ways['h2d']:,.2f} GB back"
    if verbose and result.storage:
        moved = [item.bytes_total / 1e9 for item in (result.storage.written, result.storage.read)]
        yield "storage", f"{moved[0]:,.2f} GB written, {moved[1]:,.2f} GB read"
    if (slo := result.slo) is not None:
        ended = result.served_requests or 1
        missed = {name: count for name, count in slo.missed.items() if count is not None}
        each = [f"{name} {percent(1 - count / ended, 1)}" for name, count in missed.items()]
        yield "limits kept", f"{percent(slo.attained_rate or 0.0, 1)} ({', '.join(each)})"
        yield "goodput", f"{slo.goodput_requests_per_s:,.3f} requests/s"
    if result.storage:
        losses = result.storage.losses
        each_loss = ((name.replace("_", " "), getattr(losses, name)) for name in Losses.__slots__)
        if text := ", ".join(f"{name} {count:,.6g}" for name, count in each_loss if count):
            yield "not done by storage", text
    if result.preempted:
        yield "preempted", f"{result.preempted:,} x"
    if result.expected_error:
        yield "error", error_row(result.expected_error)
    if result.stages is not None:
        rates = [percent(rate, 3) for rate in result.stages.idle_rate]
        idle = ", ".join(rates) if len(rates) <= _MOST else f"{min(rates)} to {max(rates)}"
        yield (
            "stages idle",
            f"{idle} of the {result.stages.under_way_s:,.1f} s with passes under way",
        )
    if result.fleet is not None:
        most = f"{result.fleet.imbalance.computed_tokens:.2f} x the mean"
        yield "replicas", f"{len(result.fleet.replicas)}, the busiest computed {most}"
    checks = result.checks
    counts = f": {checks.operations:,} operations, {checks.violations:,} violations"
    yield "checks", checks.level + counts * (checks.level != "off")
    if verbose and checks.byte_checks:
        compared = f"{checks.byte_checks:,} comparisons, {checks.access_checks:,} accesses"
        yield "bytes and order", compared
    if checks.specified:
        part = f"{checks.specified:,} of {checks.operations:,} as the specification says"
        size = f"at up to {checks.specified_nodes:,} nodes and {checks.specified_pages:,} pages"
        yield "decisions", f"{part}, {size}"
    if checks.not_judged:
        yield "not judged", f"decisions: {checks.not_judged}"
    yield "digest", result.digest
    yield "wall time", f"{result.wall_s:.1f} s"


# -- one request: `--why N`


def why_rows(play: Play, index: int) -> Rows:
    """(label, value) of what is known of request `index`, which must have been served."""
    [record] = [request for request in requests_of(play) if request.request == index]
    return [
        (name.removesuffix("_ns").replace("_", " "), value)
        for name, item in document(record).items()
        for value in [_value(name, item)]
        if value
    ]


def _value(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        parts = ((inner.replace("_", " "), _value(name, item)) for inner, item in value.items())
        return ", ".join(f"{inner} {text}" for inner, text in parts if text)
    if name.endswith("_ns") and value is not None:
        return f"{value / NS_PER_S:,.3f} s"
    return f"{value:,}" if isinstance(value, int) else (value or "").replace("_", " ")
