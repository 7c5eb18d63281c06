"""What a replay prints, for people: 80 columns, no colour when piped, one screen unless verbose.

A section is a table whose rows are data; it shows figures of results/record and computes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

from msgspec.structs import astuple
from rich.table import Table
from rich.text import Text

from hicache.core.components.base import residency
from hicache.storage.base import Losses
from sim.engine.sequence import RequestResult
from sim.workload import Job

from ..expected import table as expected
from ..formats.base import Paged, Trace
from ..replaying.account import NOTHING, TOGETHER, UNSEEN
from ..replaying.config import ReplayConfig, components_of
from ..replaying.fleet import trip_times
from ..replaying.following import COMPLETE, EVICTED, FIRST_SEEN, NOT_READY, Miss
from ..replaying.load import LoadedTrace, spelled
from ..replaying.run import NS_PER_S, FleetUse, Run
from ..results.record import Checks, Component, Fleet, Goodput, Result, Share, Stages, Storage
from ..terminal.streams import name as shown
from ..terminal.tables import console, pairs, percent, table

Rows = list[tuple[str, str]]
_MOST = 4  # stages, reasons of loss: in one report unless verbose
_TURNS = 24
_WAITS = {
    "writing_back": "waiting for copies",
    "arriving": "waiting for a load",
    "no_pages": "out of pages",
    "fetching": "waiting for a prefetch",
}
_HITS = "hits: one request at a time, no clock, a complete hit counts fully"


def print_report(
    trace: Trace,
    settings: ReplayConfig,
    run: Run,
    found: Result,
    verbose: bool = False,
    stream: TextIO | None = None,
) -> None:
    """found: the figures of the run. verbose: all of them, else at most 45 lines."""
    out = console(stream)
    if found.interrupted:
        served = f"{found.served_requests:,} of {len(trace.jobs):,} requests"
        out.print(Text.assemble(("Interrupted.", "bold"), f" This report covers {served}.\n"))
    out.print(sentence(found))
    storage, several = found.storage, len(run.components) > 1
    sections: list[Table | None] = [
        pairs("Replay", _setting(trace, settings, verbose)),
        _hits(settings, run, found, verbose),
        _pools(run.components) if verbose and several else None,
        _ended(settings, run) if verbose and several else None,
        _turns(found) if verbose and found.turns else None,
        _latency(found, verbose),
        _limits(settings, found) if verbose else None,
    ]
    if verbose:
        sections += [*_fleet(found.fleet)] if found.fleet else []
        sections += [_prefetches(storage)] if storage else []
        sections += [_transfers(settings, found), _errors(found)]
    sections.append(pairs("Result", _result(found, verbose)))
    for one in filter(None, sections):
        out.print(one)


def sentence(found: Result) -> str:
    """The one to forward."""
    whole = found.whole
    told = f"{percent(whole.hit_rate, 1)} of the prompt tokens hit"
    told += f", at most {percent(whole.ceiling_rate, 1)} could"
    if not found.trace.identity:
        told = "The trace does not say what could hit"
    return told + (f"; TTFT p90 {found.latency_s.ttft.p90:,.3g} s." if found.latency_s else ".")


def _setting(trace: Trace, settings: ReplayConfig, verbose: bool) -> Rows:
    core, engine, timed = settings.core, settings.engine, settings.mode == "timed"
    rows = [
        ("trace", f"{shown(trace.path)} ({trace.format})"),
        ("requests", f"{len(trace.jobs):,} with {trace.jobs.input_tokens:,} input tokens"),
        *load_rows(trace),
        *size_rows(trace, settings, verbose),
        *_storage(settings),
        *_model(settings, verbose),
    ]
    if verbose:
        rows.append(("policy", f"{core.eviction_policy}, {core.write_policy}"))
    rows.append(_hardware(settings) if timed else ("mode", _HITS))
    if timed:
        rows.append(("engine", _engine(settings)))
        if unlike := ", ".join(map(str, settings.unlike_measured)):
            model = settings.hardware.geometry["model"]
            said = f"{unlike}: the profile copied pages of {model}, so times may differ"
            rows.append(("not measured", said))
    if timed and verbose:
        passes = f"{engine.token_budget:,} tokens in a pass, {engine.max_running} running"
        rows.append(("times", shown(settings.time_model.label)))
        rows.append(("scheduler", f"{engine.order}, {passes}"))
    return rows


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


def size_rows(trace: Trace, settings: ReplayConfig, verbose: bool) -> Rows:
    """How large everything is, and why: what was left out, then one row for each pool; if verbose,
    also window, states and the page size. The first component's rows have only the tier's name.
    Bytes are those of one rank; with several ranks, the total of all is printed beside them."""
    core, pools = settings.core, settings.pools
    rows = []
    for name, some in (("skipped", settings.skipped), ("not cached", settings.uncached)):
        if count := len(some.requests):
            part = percent(some.input_tokens / trace.jobs.input_tokens, 1)
            tokens = f"{some.input_tokens:,} input tokens ({part})"
            rows.append((name, f"{count:,} request{'s' * (count > 1)} with {tokens}, too large"))
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
        source = "as given" if settings.page_size_given else f"that of {settings.model.name}"
        rows.append(("page size", f"{core.page_size:,} tokens, {source}"))
    if len(core.components) > 1 and trace.block_size is not None:
        names = " and ".join(core.components[1:])
        rows.append(("no reference", f"for hits of {names}: the trace has blocks, not tokens"))
    return rows


def _pool(place: int, pages: int, settings: ReplayConfig, rule: str, on_host: bool) -> str:
    if not pages:
        return "none"
    core, ranks = settings.core, settings.parallelism
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


def _storage(settings: ReplayConfig) -> Rows:
    storage, core = settings.storage, settings.core
    if storage is None:
        return []
    link, speed = storage.options, "no clock"
    size = f"{link.size_bytes / 1e9:,.4g} GB" if link.size_bytes else "no limit"
    if settings.mode == "timed":
        speed = f"{link.read_bytes_per_s / 1e9:g} GB/s read"
        speed += f", {link.write_bytes_per_s / 1e9:g} written"
    rows = [
        ("storage", f"{shown(storage.address)}: {size}, {speed}"),
        ("prefetch", f"{storage.policy}, {core.prefetch_threshold_tokens:,} tokens or more"),
    ]
    if settings.flushed:
        tiers = " and ".join(tier.name.lower() for tier in settings.flushed)
        rows.append(("rounds", f"{tiers} emptied between rounds"))
    return rows


def _model(settings: ReplayConfig, verbose: bool) -> Rows:
    model, ranks = settings.model, settings.parallelism
    each = " per rank" if settings.page_ranks * ranks.pp > 1 else ""
    page = f"{settings.rank_page_bytes[0]:,} bytes a page{each}, {model.kv_dtype}"
    rows = [("model", f"{model.name}, {page}")]
    if verbose:
        weights = _bytes(settings.weight_bytes, ranks.ranks, model.weight_bytes)
        rows.append(("weights", f"{weights}, {model.weight_dtype}"))
    return rows


def _hardware(settings: ReplayConfig) -> tuple[str, str]:
    """The link is that of one rank, in one direction, and what copies reach of it."""
    profile, ranks = settings.hardware, settings.parallelism.ranks
    link = f"host link {profile.reached_link_bytes_per_s / 1e9:.1f} GB/s{_each_rank(settings)}"
    if settings.host_bandwidth.bytes_per_s:
        source = "as given"
    elif profile.curves:
        source = "measured copies"
    else:
        factor = settings.host_bandwidth.factor
        times = f"{float(factor):g} x " if factor != 1 else ""
        source = f"{times}{profile.link_permille / 10:g}% of its peak"
    return "hardware", f"{ranks} x {profile.name}, {link} each way ({source})"


def _each_rank(settings: ReplayConfig) -> str:
    """What follows a figure of one rank where there are several."""
    return " per rank" if settings.parallelism.ranks > 1 else ""


def _engine(settings: ReplayConfig) -> str:
    """The engine, and which version stands for one that is not known."""
    profile, ranks = settings.engine.profile, settings.parallelism
    spread = f", experts over {ranks.ep} ranks" if ranks.ep > 1 else ""
    if ranks.attention_dp > 1:
        spread += f", attention in {ranks.attention_dp} groups of {ranks.attention_tp}"
    if ranks.dcp > 1:
        spread += f", tokens divided among {ranks.dcp} ranks"
    return shown(f"{profile.label}{spread}{f' ({profile.note})' if profile.note else ''}")


# -- hits


def _hits(settings: ReplayConfig, run: Run, found: Result, verbose: bool) -> Table:
    whole, steady = found.whole, found.steady
    result = table("Prompt tokens", "", "whole trace", "", "last 50 %", "")
    counts: list[tuple[str, Callable[[Share], int]]] = [
        ("device hits", lambda share: share.hit_tokens.device),
        ("host hits", lambda share: share.hit_tokens.host),
        ("storage hits", lambda share: share.hit_tokens.storage),
        ("computed", lambda share: share.computed_tokens),
        ("  first seen", lambda share: share.first_seen_tokens),
        ("  evicted or not ready", lambda share: share.lost_tokens),
    ]
    if settings.storage is None:
        del counts[2]  # no such tier
    for name, read in counts:
        cells = []
        for share in (whole, steady):
            cells += [f"{read(share):,}", percent(share.rate(read(share)))]
        result.add_row(name, *cells)
    losses = _lost(settings, run, found)
    for name, tokens in losses if verbose else losses[:_MOST]:
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
    if found.measured and found.measured.cached_tokens is not None:
        cached = found.measured.cached_tokens
        told = percent(cached / (found.trace.input_tokens or 1))
        result.add_row("measured in the log", f"{cached:,}", told, "", "")
    return result


def _lost(settings: ReplayConfig, run: Run, found: Result) -> list[tuple[str, int]]:
    """What tokens were lost to, where it is known, the largest first."""
    losses = []
    if found.storage is not None:
        lost = found.storage.lost_tokens
        losses = [(name.replace("_", " "), one.tokens) for name, one in lost.items()]
    elif len(run.components) > 1:
        size, capped = settings.core.page_size, run.lookups.capped().items()
        each = [(_cap(settings, cap), one.lost_pages * size) for cap, one in capped]
        losses = sorted((one for one in each if one[1]), key=lambda one: -one[1])
    if found.fleet is not None and found.fleet.elsewhere_tokens:
        losses.append(("on other replicas", found.fleet.elsewhere_tokens))
    return losses


def _pools(components: Mapping[str, Component]) -> Table:
    result = table("Pools (pages; for mamba, states)", "", *components)

    def cached(tier: str) -> Callable[[Component], str]:
        def cell(use: Component) -> str:
            count: int | None = getattr(use.cached_at_rest, tier, None)
            garbage: int = getattr(use.garbage_at_rest, tier, 0)
            return "-" if count is None else f"{count:,}, {percent(garbage / (count or 1), 0)}"

        return cell

    rows: tuple[tuple[str, Callable[[Component], str]], ...] = (
        ("bytes each, one rank", lambda use: f"{use.page_bytes:,}"),
        ("device", lambda use: f"{use.capacity.device:,}"),
        ("host", lambda use: f"{use.capacity.host:,}"),
        ("copied to host", lambda use: f"{use.backed_up:,}"),
        ("loaded back", lambda use: f"{use.loaded:,}"),
        ("peak use, device", lambda use: f"{use.most_in_use:,}"),
        ("evicted from device", lambda use: f"{use.evicted.device:,}"),
        ("  for another pool", lambda use: f"{use.evicted_along:,}"),
        ("evicted from host", lambda use: f"{use.evicted.host:,}"),
        ("at the end, of it garbage, device", cached("device")),
        ("at the end, of it garbage, host", cached("host")),
    )
    for name, cell in rows:
        result.add_row(name, *map(cell, components.values()))
    return result


def _ended(settings: ReplayConfig, run: Run) -> Table:
    size, lookups = settings.core.page_size, run.lookups
    count = len(lookups.by_request)
    wanted = sum(row.wanted for row in lookups.by_request.values()) * size
    alone = lookups.alone()
    title = f"What ended each hit ({count:,} lookups)"
    result = table(title, "", "hits alone", "lookups", "", "tokens lost")
    for cap, capped in lookups.capped().items():
        rate = percent(alone[cap] * size / wanted) if cap in alone and wanted else ""
        share = percent(capped.lookups / count) if count else ""
        lost = f"{capped.lost_pages * size:,}"
        result.add_row(_cap(settings, cap), rate, f"{capped.lookups:,}", share, lost)
    return result


def _cap(settings: ReplayConfig, cap: str) -> str:
    """What ended a hit, as a label."""
    plain = {
        NOTHING: "nothing: complete hit",
        UNSEEN: "unseen: new in the trace",
        TOGETHER: "together: several reasons",
        settings.core.components[0]: f"{settings.core.components[0]}: evicted or not ready",
    }
    if cap in plain:
        return plain[cap]
    component = components_of(settings.core)[settings.core.components.index(cap)]
    return f"{cap}: no {'window' if component.positional else 'state'}"


def _turns(found: Result) -> Table:
    title = f"Turns of conversations (told by {found.turns_from})"
    result = table(title, "turn", "requests", "input", "hit", "hit rate")
    turns = found.turns or ()
    for one in turns[:_TURNS]:
        counts = (f"{count:,}" for count in (one.requests, one.input_tokens, one.hit_tokens))
        result.add_row(str(one.turn), *counts, f"{one.hit_rate:.6f}")
    if len(turns) > _TURNS:
        result.add_row(f"and {len(turns) - _TURNS} more", "", "", "", "")
    result.add_section()
    whole = found.whole
    counts = (f"{count:,}" for count in (whole.requests, whole.input_tokens, whole.hit_tokens.all))
    result.add_row("all", *counts, f"{whole.hit_rate:.6f}")
    return result


# -- times, transfers


def _latency(found: Result, verbose: bool) -> Table | None:
    times, output = found.latency_s, found.output
    if times is None or output is None:
        return None
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
    if found.measured and found.measured.ttft_p50_s is not None:
        p50 = f"{found.measured.ttft_p50_s:,.3f}"
        result.add_row("TTFT measured in the log (s)", "", p50, "", "", "")
    result.add_row("output tokens per second", f"{output.tokens_per_s:,.1f}")
    if verbose:
        result.add_row("makespan (s)", f"{times.makespan:,.1f}")
    return result


def _limits(settings: ReplayConfig, found: Result) -> Table | None:
    slo = found.slo
    if settings.slo is None or slo is None:
        return None
    ended = found.served_requests
    result = table("Limits (--slo)", "", "limit", "requests that keep it", "")
    for name, limit in settings.slo.limits:
        keep = ended - (slo.missed[name] or 0)
        result.add_row(name, spelled(limit), f"{keep:,}", percent(keep / ended if ended else 0.0))
    result.add_row("all", "", f"{slo.attained_requests:,}", percent(slo.attained_rate or 0.0))
    for one in slo.classes:
        what = "tenant" if one.by == "tenant" else "prompts of"
        share = percent(one.attained_requests / one.requests)
        result.add_row(f"  {what} {one.name}", "", f"{one.attained_requests:,}", share)
    result.add_row("goodput, requests/s", "", f"{slo.goodput_requests_per_s:,.3f}", "")
    result.add_row("goodput, output tokens/s", "", f"{slo.goodput_tokens_per_s:,.1f}", "")
    return result


def _errors(found: Result) -> Table | None:
    if found.expected_error is None or not found.expected_error.validated:
        return None
    columns = ("median", "nine of ten", "judged runs, at once", "unlike")
    result = table("Error to expect", "", *columns)
    for row in expected.rows(found.expected_error):
        result.add_row(*row)
    return result


def _transfers(settings: ReplayConfig, found: Result) -> Table:
    first, evicted = next(iter(found.components.values())), found.evicted_pages
    pages_of = "pages" if len(found.components) == 1 else "pages of full"
    result = table("Tiers", "", pages_of, "GB" + _each_rank(settings), "busy (s)")

    def add(name: str, pages: int, size: float, busy_s: float | None) -> None:
        busy = "-" if busy_s is None else f"{busy_s:,.3f}"
        result.add_row(name, f"{pages:,}", f"{size / 1e9:,.2f}", busy)

    d2h, h2d = found.transfers["d2h"], found.transfers["h2d"]
    add("device to host", first.backed_up, d2h.bytes, d2h.busy_s)
    add("host to device", first.loaded, h2d.bytes, h2d.busy_s)
    if found.storage is not None:
        read, written = found.storage.read, found.storage.written
        for name, moved in (("host to storage", written), ("storage to host", read)):
            add(name, moved.values.get("done", 0), moved.bytes_total, moved.busy_s)
            for end, count in sorted(moved.values.items()):
                if end != "done":
                    result.add_row(f"  {end}", f"{count:,}", "", "")
    result.add_row("evicted from device", f"{evicted.device:,}", "", "")
    result.add_row("evicted from host", f"{evicted.host:,}", "", "")
    return result


def _prefetches(storage: Storage) -> Table:
    result = table("Prefetches", "", "requests", "tokens asked", "found", "fetched")
    for reason, one in sorted(storage.prefetches.ended.items()):
        result.add_row(reason.replace("_", " "), *(f"{count:,}" for count in astuple(one)))
    result.add_row("lookups begun", f"{storage.prefetches.begun:,}", "", "", "")
    return result


def _losses(losses: Losses) -> str:
    """What the store did not do."""
    each = ((name.replace("_", " "), getattr(losses, name)) for name in Losses.__slots__)
    return ", ".join(f"{name} {count:,.6g}" for name, count in each if count)


def _fleet(fleet: Fleet) -> Iterator[Table]:
    """A row for each replica; with decode replicas, the way between them."""
    columns = ["requests", "hit rate", "computed", "output", "TTFT p90 (s)"]
    rows = table("Replicas (tokens)", "", *columns)
    for one in fleet.replicas:
        rate = "-" if one.hit_rate is None else percent(one.hit_rate)
        computed = "-" if one.hit_rate is None else f"{one.computed_tokens:,}"
        ttft = f"{one.ttft_s.p90:,.3f}" if one.ttft_s else "-"
        cells = [f"{one.requests:,}", rate, computed, f"{one.output_tokens:,}", ttft]
        rows.add_row(f"{one.replica}  {one.role}", *cells)
    uneven = fleet.imbalance
    cells = [f"{uneven.requests:.2f}", "", f"{uneven.computed_tokens:.2f}", "", ""]
    rows.add_row("largest / mean", *cells)
    yield rows
    if fleet.kv_link is None:
        return
    rows = table("From prefill to decode", "", "mean", "p50", "p90", "p95", "p99")
    for name, times in (fleet.handoff_s or {}).items():
        cells = [f"{value:,.3f}" for value in astuple(times)]
        rows.add_row(f"{name.replace('_', ' ')} (s)", *cells)
    rows.add_row("moved (GB)", f"{fleet.kv_link.bytes_total / 1e9:,.2f}", "", "", "", "")
    yield rows


# -- the result


def _result(found: Result, verbose: bool) -> Rows:
    rows: Rows = []
    if found.limit is not None:
        rows.append(("limits", found.limit.text))
        rows += [("try", one) for one in found.limit.tries]
    if found.load is not None:
        load = found.load
        rows.append(("at once", f"{load.running_mean:,.1f} on average, {load.running_most:,} most"))
    if found.refused:
        rows.append(("retries", _retries(found.refused)))
    if found.slo is not None and not verbose:
        rows += _kept(found.slo, found.served_requests)
    if found.storage and (losses := _losses(found.storage.losses)):
        rows.append(("not done by storage", losses))
    if found.preempted:
        rows.append(("preempted", f"{found.preempted:,} x"))
    if found.expected_error:
        rows.append(("error", expected.row(found.expected_error)))
    if found.stages is not None:
        rows.append(("stages idle", _idle(found.stages)))
    if found.fleet is not None and not verbose:
        most = f"{found.fleet.imbalance.computed_tokens:.2f} x the mean"
        rows.append(("replicas", f"{len(found.fleet.replicas)}, the busiest computed {most}"))
    rows += _checked(found.checks, verbose)
    return [*rows, ("digest", found.digest), ("wall time", f"{found.wall_s:.1f} s")]


def _kept(slo: Goodput, ended: int) -> Rows:
    """The requests that keep the limits."""
    each = [
        f"{name} {percent((ended - missed) / (ended or 1), 1)}"
        for name, missed in slo.missed.items()
        if missed is not None
    ]
    return [
        ("limits kept", f"{percent(slo.attained_rate or 0.0, 1)} ({', '.join(each)})"),
        ("goodput", f"{slo.goodput_requests_per_s:,.3f} requests/s"),
    ]


def _retries(refused: Mapping[str, int]) -> str:
    """Refusals that were retried: `703 waiting for copies, 12 out of pages of swa`."""
    parts = []
    for name, count in sorted(refused.items(), key=lambda item: (-item[1], item[0])):
        reason, of, component = name.partition(" of ")
        parts.append(f"{count:,} {_WAITS.get(reason, reason)}{of}{component}")
    return ", ".join(parts)


def _idle(stages: Stages) -> str:
    """How much of the time the pipeline had bubbles."""
    rates = [percent(rate) for rate in stages.idle_rate]
    each = ", ".join(rates) if len(rates) <= _MOST else f"{min(rates)} to {max(rates)}"
    return f"{each} of the {stages.under_way_s:,.1f} s with passes under way"


def _checked(checks: Checks, verbose: bool) -> Rows:
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


# -- one request: `--why N`


def why_rows(trace: Trace, paged: Paged, run: Run, index: int) -> Rows:
    """(label, value) of request `index`, which must have been served."""
    assert run.history is not None
    row = next(row for row in run.account.rows() if row.request == index)
    results = () if run.latency is None else run.latency.requests
    result = next((one for one in results if one.request == index), None)
    job, miss, caps = trace.jobs[index], run.history.misses[index], run.history.caps.get(index)
    tiers = {"device": row.device, "host": row.host, "storage": row.storage}
    hits = ", ".join(f"{tokens:,} on {tier}" for tier, tokens in tiers.items() if tokens)
    rows = [
        ("line", f"{trace.line_numbers[index]:,} of {shown(trace.path)}"),
        ("input", f"{row.input_tokens:,} tokens"),
        ("output", f"{job.output_length:,} tokens"),
    ]
    if result is not None:
        own = result.arrival_ns != job.arrival_ns and job.after < 0
        in_trace = f" ({_seconds(job.arrival_ns)} in the trace)" if own else ""
        rows.append(("arrived", f"{_seconds(result.arrival_ns)}{in_trace}"))
    rows += _way(run.fleet, index) if run.fleet is not None else []
    rows.append(("could reuse", f"{row.ceiling:,} tokens ({row.ceiling / row.input_tokens:.0%})"))
    if row.ceiling:
        first = _latest_with(trace, paged, job, -(-row.ceiling // paged.page_size) - 1)
        rows.append(("from request", first))
    rows += [("hit", hits or "0"), ("hit ended by", miss.ended_by.replace("_", " "))]
    if miss.ended_by == EVICTED:
        rows += _evicted(miss, result)
    elif miss.ended_by == NOT_READY:
        rows.append(("  computed by request", _latest_with(trace, paged, job, miss.hit_pages)))
    if miss.ended_by not in (COMPLETE, FIRST_SEEN) and caps is not None:
        for tier, each in caps.tiers.items():
            words = [f"{cap.replace('_', ' ')} ({pool})" for pool, cap in each.items()]
            rows.append((f"  next page, {tier}", ", ".join(words)))
        if caps.reason:
            rows.append(("  lost to", caps.reason.replace("_", " ")))
    rows.append(("computed", f"{row.input_tokens - row.hit_tokens:,} tokens"))
    rows.append(("computed twice", f"{row.lost:,} tokens"))
    return rows + (_waited(result, run.history.refused.get(index, {})) if result else [])


def _latest_with(trace: Trace, paged: Paged, job: Job, page: int) -> str:
    """The latest request before `job` that has its page number `page`, and the line of it."""
    wanted = paged.chain(job)[page]
    for index in range(job.index - 1, -1, -1):
        chain = paged.chain(paged.jobs[index])
        if len(chain) > page and chain[page] == wanted:
            return f"{index} (line {trace.line_numbers[index]:,})"
    return "-"


def _evicted(miss: Miss, result: RequestResult | None) -> Rows:
    left = "host" if miss.from_host else "device"
    if result is not None and miss.evicted_ns >= 0:
        before = _seconds(result.admit_ns - miss.evicted_ns)
        left += f" at {_seconds(miss.evicted_ns)}, {before} before the admission"
    cause = f"request {miss.evicted_for} ({miss.evicted_at})"
    return [
        ("  next page left", left),
        ("  for", cause if miss.evicted_for >= 0 else miss.evicted_at),
    ]


def _way(use: FleetUse, request: int) -> Rows:
    rows = [("replica", f"{use.choices[request]} of {len(use.figures.replicas)}")]
    trip = (use.trips or {}).get(request)
    if trip is None or trip.arrived_ns < 0:
        return rows
    times = [f"{name.replace('_', ' ')} {_seconds(ns)}" for name, ns in trip_times(trip).items()]
    return [*rows, ("decode replica", str(trip.decode)), ("until there", ", ".join(times))]


def _waited(result: RequestResult, refused: dict[str, int]) -> Rows:
    reasons = ", ".join(f"{name} {count:,} x" for name, count in sorted(refused.items()))
    waited = f"{_seconds(result.queue_ns)} for a pass, {_seconds(result.load_ns)} for loads"
    return [
        ("waited", waited),
        *([("  told to wait", reasons)] if refused else []),
        *([("preempted", f"{result.retractions:,} x")] if result.retractions else []),
        ("computing", _seconds(result.compute_ns)),
        ("first token after", _seconds(result.first_token_ns - result.arrival_ns)),
        ("ended", f"at {_seconds(result.finish_ns)}"),
    ]


def _seconds(time_ns: int) -> str:
    return f"{time_ns / NS_PER_S:,.3f} s"
