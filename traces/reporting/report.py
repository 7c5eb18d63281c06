"""The report of a replay, for people: 80 columns, no colour when piped, one screen unless verbose.

Shows the figures of results/record and computes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from typing import TextIO

from rich.table import Table
from rich.text import Text

from hicache.core.components.base import residency

from ..expected import words as expected
from ..formats.base import Trace
from ..replaying.config import ReplayConfig as Settings
from ..replaying.load import LoadedTrace
from ..replaying.run import Run
from ..results.record import Checks, Output, Result, Share, Stages, Times
from ..terminal.tables import console, pairs, percent, table
from ..terminal.text import name as shown
from .components import component_tables, each_rank, loss_rows, turn_table
from .fleet import fleet_tables
from .limits import Limit, saved_s
from .slo import limits_table
from .stored import losses_table, prefetch_table, reason_in_words, setting_rows, transfer_rows

_MOST_STAGES = 4
_MOST_LOSSES = 4  # rows, unless verbose
_WAITS = {
    "writing_back": "waiting for copies",
    "arriving": "waiting for a load",
    "no_pages": "out of pages",
    "fetching": "waiting for a prefetch",
}


def print_report(
    trace: Trace,
    settings: Settings,
    run: Run,
    found: Result,
    limit: Limit,
    verbose: bool = False,
    stream: TextIO | None = None,
) -> None:
    """found: the figures of the run. verbose: all of them, else at most 45 lines."""
    out = console(stream)
    if found.interrupted:
        served = f"{found.served_requests:,} of {len(trace.jobs):,} requests"
        out.print(Text.assemble(("Interrupted.", "bold"), f" This report covers {served}.\n"))
    out.print(sentence(found))
    made: list[Table | None] = [
        _setting(trace, settings, verbose),
        _hits(settings, run, found, verbose),
    ]
    if verbose:
        made += [*component_tables(settings, run), turn_table(found)]
    if found.latency_s and found.output:
        made.append(_latency(found.latency_s, found.output, verbose))
    made.append(limits_table(settings, run, found.slo, verbose))
    storage = found.storage
    made.append(losses_table(storage.losses) if storage else None)
    if verbose:
        made += fleet_tables(found.fleet) if found.fleet else []
        made += [prefetch_table(storage)] if storage else []
        made += [_transfers(settings, found), _errors(found)]
    made.append(_result(settings, run, found, limit, verbose))
    for one in made:
        if one is not None:
            out.print(one)


def print_story(text: str, stream: TextIO | None = None) -> None:
    console(stream).print(text, markup=False)


def sentence(found: Result) -> str:
    """The one to forward."""
    share = found.whole
    told, most = percent(share.hit_rate, 1), percent(share.ceiling_rate, 1)
    told = f"{told} of the prompt tokens hit, at most {most} could"
    if not found.trace.identity:
        told = "The trace does not say what could hit"
    return told + (f"; TTFT p90 {found.latency_s.ttft.p90:,.3g} s." if found.latency_s else ".")


def _setting(trace: Trace, settings: Settings, verbose: bool) -> Table:
    core, engine = settings.core, settings.engine
    rows = [
        ("trace", f"{shown(trace.path)} ({trace.format})"),
        ("requests", f"{len(trace.jobs):,} with {trace.jobs.input_tokens:,} input tokens"),
        *load_rows(trace),
        *size_rows(trace, settings, verbose),
        *setting_rows(settings),
        *model_rows(settings, verbose),
    ]
    if verbose:
        rows.append(("policy", f"{core.eviction_policy}, {core.write_policy}"))
    rows.append(hardware_row(settings) if settings.mode == "timed" else ("mode", _HITS))
    if settings.mode == "timed":
        rows += [("engine", _engine(settings)), *_not_measured(settings)]
    if settings.mode == "timed" and verbose:
        passes = f"{engine.token_budget:,} tokens in a pass, {engine.max_running} running"
        rows.append(("times", shown(settings.time_model.label)))
        rows.append(("scheduler", f"{engine.order}, {passes}"))
    return pairs("Replay", rows)


_HITS = "hits: one request at a time, no clock, a complete hit counts fully"


def load_rows(trace: Trace) -> Iterator[tuple[str, str]]:
    """What the options of load made of the trace."""
    if not isinstance(trace, LoadedTrace):
        return
    if (scale := trace.scale) is not None:
        before, now = scale.sessions
        told = "sessions" if scale.named else "requests that share a prefix"
        tokens = f"{scale.tokens:.3g} x the prompt tokens (--scale-sessions)"
        yield told, f"{now:,} instead of {before:,}, {tokens}"
    if trace.chained:
        whose = "session" if trace.told_by == "sessions" else "prompt"
        waiting = f"{trace.chained:,} of {len(trace.jobs):,} requests wait"
        yield "closed loop", f"{waiting} for the one before in their {whose}"


def _engine(settings: Settings) -> str:
    """The engine, and which version stands for one that is not known."""
    profile, ranks = settings.engine.profile, settings.parallelism
    spread = f", experts over {ranks.ep} ranks" if ranks.ep > 1 else ""
    if ranks.attention_dp > 1:
        spread += f", attention in {ranks.attention_dp} groups of {ranks.attention_tp}"
    if ranks.dcp > 1:
        spread += f", tokens divided among {ranks.dcp} ranks"
    asked = f" ({profile.note})" if profile.note else ""
    return shown(f"{profile.label}{spread}{asked}")


def _not_measured(settings: Settings) -> list[tuple[str, str]]:
    """The copies whose times a measured profile does not say."""
    unlike = ", ".join(map(str, settings.unlike_measured))
    if not unlike:
        return []
    model = settings.hardware.geometry["model"]
    return [("not measured", f"{unlike}: the profile copied pages of {model}, so times may differ")]


def _hits(settings: Settings, run: Run, found: Result, verbose: bool) -> Table:
    whole, steady = found.whole, found.steady
    result = table("Prompt tokens", "", "whole trace", "", "last 50 %", "")
    counts: tuple[tuple[str, Callable[[Share], int]], ...] = (
        ("device hits", lambda share: share.hit_tokens.device),
        ("host hits", lambda share: share.hit_tokens.host),
        ("storage hits", lambda share: share.hit_tokens.storage),
        ("computed", lambda share: share.computed_tokens),
        ("  first seen", lambda share: share.first_seen_tokens),
        ("  evicted or not ready", lambda share: share.lost_tokens),
    )
    for name, read in counts:
        if name == "storage hits" and settings.storage is None:
            continue  # no such tier
        cells = []
        for share in (whole, steady):
            cells += [f"{read(share):,}", percent(share.rate(read(share)))]
        result.add_row(name, *cells)
    losses = list(_losses(settings, run, found))
    for name, tokens in losses if verbose else losses[:_MOST_LOSSES]:
        result.add_row(f"    {name}", f"{tokens:,}", percent(whole.rate(tokens)), "", "")
    rates: list[tuple[str, Callable[[Share], float]]] = [
        ("hit rate, token-weighted", lambda share: share.hit_rate),
        ("ceiling, token-weighted", lambda share: share.ceiling_rate),
    ]
    if verbose:
        size = settings.core.page_size
        rates.append((f"hit rate, pages of {size}", lambda share: share.hit_rate_pages))
        rates.append(("hit rate, mean per request", lambda share: share.hit_rate_mean))
    for name, rate in rates:
        result.add_row(name, "", percent(rate(whole)), "", percent(rate(steady)))
    return result


def _losses(settings: Settings, run: Run, found: Result) -> Iterator[tuple[str, int]]:
    """What tokens were lost to, where it is known, the largest first."""
    if found.storage is not None:
        for reason, lost in found.storage.lost_tokens.items():
            yield reason_in_words(reason), lost.tokens
    elif len(run.components) > 1:
        yield from loss_rows(settings, run)
    if found.fleet is not None and found.fleet.elsewhere_tokens:
        yield "on other replicas", found.fleet.elsewhere_tokens


def _latency(times: Times, output: Output, verbose: bool) -> Table:
    result = table("Latency (virtual time)", "", "mean", "p50", "p90", "p95", "p99")
    for name, one, scale, unit, always in (
        ("time to first token", times.ttft, 1.0, "s", True),
        ("  in the queue", times.queue, 1.0, "s", True),
        ("  waiting for loads", times.load, 1.0, "s", False),
        ("  computing", times.compute, 1.0, "s", False),
        ("time per output token", times.tpot, 1e3, "ms", True),
        ("time between two tokens", times.itl, 1e3, "ms", False),
    ):
        if always or verbose:
            cells = (f"{value * scale:,.3f}" for value in astuple(one))
            result.add_row(f"{name} ({unit})", *cells)
    result.add_row("output tokens per second", f"{output.tokens_per_s:,.1f}")
    if verbose:
        result.add_row("makespan (s)", f"{times.makespan:,.1f}")
    return result


def _errors(found: Result) -> Table | None:
    if not found.expected_error or not found.expected_error["validated"]:
        return None
    columns = ("median", "nine of ten", "judged runs, at once", "unlike")
    result = table("Error to expect", "", *columns)
    for row in expected.rows(found.expected_error):
        result.add_row(*row)
    return result


def _transfers(settings: Settings, found: Result) -> Table:
    first, evicted = next(iter(found.components.values())), found.evicted_pages
    pages_of = "pages" if len(found.components) == 1 else "pages of full"
    result = table("Tiers", "", pages_of, "GB" + each_rank(settings), "busy (s)")
    for way, name, pages in (
        ("d2h", "device to host", first.backed_up),
        ("h2d", "host to device", first.loaded),
    ):
        moved = found.transfers[way]
        busy = "-" if moved.busy_s is None else f"{moved.busy_s:,.3f}"
        result.add_row(name, f"{pages:,}", f"{moved.bytes / 1e9:,.2f}", busy)
    for row in transfer_rows(found.storage):
        result.add_row(*row)
    result.add_row("evicted from device", f"{evicted.device:,}", "", "")
    result.add_row("evicted from host", f"{evicted.host:,}", "", "")
    return result


def _result(settings: Settings, run: Run, found: Result, limit: Limit, verbose: bool) -> Table:
    rows = [("limits", limit.text), *(("try", one) for one in limit.tries)]
    if found.latency_s and found.whole.hit_tokens.host:
        rows.append(("host saves", f"{saved_s(settings, run):,.1f} s of compute"))
    if found.expected_error:
        rows.append(("error", expected.row(found.expected_error)))
    if verbose and found.refused:
        rows.append(("retries", retries(found.refused)))
    if verbose and found.preempted:
        rows.append(("preempted", f"{found.preempted:,} x"))
    if found.stages is not None:
        rows.append(("stages idle", _idle(found.stages)))
    if found.fleet is not None and not verbose:
        most = f"{found.fleet.imbalance.computed_tokens:.2f} x the mean"
        rows.append(("replicas", f"{len(found.fleet.replicas)}, the busiest computed {most}"))
    rows += _checked(found.checks, verbose)
    return pairs(
        "Result", [*rows, ("digest", found.digest), ("wall time", f"{found.wall_s:.1f} s")]
    )


def retries(refused: Mapping[str, int]) -> str:
    """Refusals that were retried: `703 waiting for copies, 12 out of pages of swa`."""
    parts = []
    for name, count in sorted(refused.items(), key=lambda item: (-item[1], item[0])):
        reason, of, component = name.partition(" of ")
        parts.append(f"{count:,} {_WAITS.get(reason, reason)}{of}{component}")
    return ", ".join(parts)


def _idle(stages: Stages) -> str:
    """How much of the time the pipeline had bubbles."""
    rates = [percent(rate) for rate in stages.idle_rate]
    shown = ", ".join(rates) if len(rates) <= _MOST_STAGES else f"{min(rates)} to {max(rates)}"
    return f"{shown} of the {stages.under_way_s:,.1f} s with passes under way"


def _checked(checks: Checks, verbose: bool) -> list[tuple[str, str]]:
    if checks.level == "off":
        return [("checks", "off")]
    counts = f"{checks.operations:,} operations, {checks.violations:,} violations"
    rows = [("checks", f"{checks.level}: {counts}")]
    if verbose:
        rows.append(("  of these", f"{checks.incremental:,} incremental, {checks.full:,} full"))
        if checks.byte_checks:
            compared = f"{checks.byte_checks:,} comparisons, {checks.access_checks:,} accesses"
            rows.append(("bytes and order", compared))
        if checks.level == "every":
            specified = f"{checks.specified:,} operations as the specification says"
            rows.append(("decisions", specified))
    return [*rows, ("not judged", checks.not_judged)] if checks.not_judged else rows


def size_rows(trace: Trace, settings: Settings, verbose: bool) -> list[tuple[str, str]]:
    """How large everything is, and why: what was left out, then one row for each pool; if verbose,
    also window, states and the page size. The first component's rows have only the tier's name.
    Bytes are those of one rank; with several ranks, the total of all is printed beside them."""
    core, pools = settings.core, settings.pools
    skipped, uncached = settings.skipped, settings.uncached
    rows = []
    for name, some in (("skipped", skipped), ("not cached", uncached)):
        if count := len(some.requests):
            part = percent(some.input_tokens / trace.jobs.input_tokens, 1)
            plural = "s" * (count > 1)
            tokens = f"{some.input_tokens:,} input tokens ({part})"
            rows.append((name, f"{count:,} request{plural} with {tokens}, too large"))
    for tier, sizes, rules in (
        ("device", core.device_pages, pools.device_rules),
        ("host", core.host_pages, pools.host_rules),
    ):
        for place, pages in enumerate(sizes if any(sizes) else sizes[:1]):
            name = f"  {core.components[place]}" if place else tier
            rows.append((name, _pool(place, pages, settings, rules[place], tier == "host")))
    if pools.window and verbose:
        rows.append(("window", f"{pools.window:,} tokens"))
    if pools.interval:
        where = "at ends of passes, and where a prompt leaves what is known"
        if not pools.branch_states:
            where = "at ends of passes alone: a page as large as a state, as vLLM's source says"
        rows.append(("states", f"every {pools.interval:,} tokens, {where}"))
    if verbose:
        rows.append(("page size", _page_size(trace, settings)))
    if len(core.components) > 1 and trace.block_size is not None:
        names = " and ".join(core.components[1:])
        rows.append(("no reference", f"for hits of {names}: the trace has blocks, not tokens"))
    return rows


def model_rows(settings: Settings, verbose: bool) -> list[tuple[str, str]]:
    model, ranks = settings.model, settings.parallelism
    each = " per rank" if settings.page_ranks * ranks.pp > 1 else ""
    page = f"{settings.rank_page_bytes[0]:,} bytes a page{each}, {model.kv_dtype}"
    weights = _bytes(settings.weight_bytes, ranks.ranks, model.weight_bytes)
    rows = [("model", f"{model.name}, {page}")]
    return [*rows, ("weights", f"{weights}, {model.weight_dtype}")] if verbose else rows


def hardware_row(settings: Settings) -> tuple[str, str]:
    """The link is that of one rank, in one direction, and what copies reach of it."""
    profile, ranks = settings.hardware, settings.parallelism.ranks
    link = f"host link {profile.reached_link_bytes_per_s / 1e9:.1f} GB/s{each_rank(settings)}"
    if settings.host_bandwidth.bytes_per_s:
        source = "as given"
    elif profile.curves:
        source = "measured copies"
    else:
        factor = settings.host_bandwidth.factor
        times = f"{float(factor):g} x " if factor != 1 else ""
        source = f"{times}{profile.link_permille / 10:g}% of its peak"
    return "hardware", f"{ranks} x {profile.name}, {link} each way ({source})"


def _pool(place: int, pages: int, settings: Settings, rule: str, on_host: bool) -> str:
    if not pages:
        return "none"
    core = settings.core
    ranks = settings.parallelism
    sizes = settings.rank_page_bytes, settings.page_bytes
    if on_host:
        sizes = settings.rank_host_page_bytes, settings.host_page_bytes
        rule += ", once for ranks that are alike" * ranks.shared_host
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


def _page_size(trace: Trace, settings: Settings) -> str:
    size, block = settings.core.page_size, trace.block_size
    source = "as given" if settings.page_size_given else f"that of {settings.model.name}"
    text = f"{size:,} tokens, {source}"
    if block is None or size == block:
        return text
    return f"{text}; any gives about the same hits, since the trace has blocks of {block:,} tokens"
