"""The report of a replay, for people: 80 columns, no colour when piped.

Every hit rate is printed with the name of its definition. Shows the figures of results/record and
computes none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import TextIO

from rich.table import Table
from rich.text import Text

from hicache.core.components.base import residency

from ..formats.base import Trace
from ..replaying.run import Run
from ..replaying.settings import Settings
from ..results.record import Checks, Output, Result, Share, Stages, Times
from ..terminal.tables import console, pairs, percent, table
from ..terminal.text import name as shown
from .components import NO_TRUTH, component_tables, each_rank, turn_table
from .conclusions import retries
from .fleet import fleet_tables
from .slo import limits_table
from .stored import losses_table, lost_table, prefetch_table, setting_rows, transfer_rows

_MOST_STAGES = 4


def print_report(
    trace: Trace, settings: Settings, run: Run, found: Result, stream: TextIO | None = None
) -> None:
    """found: the figures of the run."""
    out = console(stream)
    if found.interrupted:
        served = f"{found.served_requests:,} of {len(trace.jobs):,} requests"
        out.print(Text.assemble(("Interrupted.", "bold"), f" This report covers {served}.\n"))
    out.print(_setting(trace, settings))
    out.print(_hits(found, settings))
    for rows in component_tables(settings, run):
        out.print(rows)
    if len(found.components) > 1 and trace.block_size is not None:
        others = " and ".join([*found.components][1:])
        out.print("\n" + NO_TRUTH.format(names=others))
    if (turns := turn_table(found)) is not None:
        out.print(turns)
    if found.latency_s and found.output and found.expected_error:
        out.print(_latency(found.latency_s, found.output))
        out.print("\n" + found.expected_error["sentence"], markup=False)
    storage, made = found.storage, [limits_table(settings, run, found.slo)]
    made += fleet_tables(found.fleet) if found.fleet else []
    if storage is not None:
        made += [prefetch_table(storage), lost_table(storage), losses_table(storage.losses)]
    made += [_transfers(settings, found), _verdict(found)]
    for one in made:
        if one is not None:
            out.print(one)


def print_story(text: str, stream: TextIO | None = None) -> None:
    console(stream).print(text + "\n", markup=False)


def _setting(trace: Trace, settings: Settings) -> Table:
    core, engine = settings.core, settings.engine
    rows = [
        ("trace", f"{shown(trace.path)} ({trace.format})"),
        ("requests", f"{len(trace.jobs):,} with {trace.jobs.input_tokens:,} input tokens"),
        ("mode", _MODE[settings.mode]),
        *size_rows(trace, settings),
        ("policy", f"{core.eviction_policy}, {core.write_policy}"),
        *setting_rows(settings),
        *model_rows(settings),
    ]
    if settings.mode == "timed":
        rows += [
            hardware_row(settings),
            ("times", shown(settings.time_model.label)),
            ("engine", _engine(settings)),
            *_not_measured(settings),
            (
                "scheduler",
                f"{engine.order}, {engine.token_budget:,} tokens in a pass, {engine.max_running} "
                f"running",
            ),
        ]
    return pairs("Replay", rows)


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


_MODE = {
    "timed": "timed: simulated engine and device, virtual time",
    "hits": "hits: one request at a time, no clock, a complete hit counts fully",
}


def _hits(found: Result, settings: Settings) -> Table:
    whole, steady = found.whole, found.steady
    result = table("Prompt tokens", "", "whole trace", "", "last 50 %", "")
    counts: tuple[tuple[str, Callable[[Share], int]], ...] = (
        ("device hits", lambda share: share.hit_tokens.device),
        ("host hits", lambda share: share.hit_tokens.host),
        ("storage hits", lambda share: share.hit_tokens.storage),
        ("computed", lambda share: share.computed_tokens),
        ("  first seen", lambda share: share.first_seen_tokens),
        ("  evicted or not ready", lambda share: share.lost_tokens),
        ("input", lambda share: share.input_tokens),
    )
    for name, read in counts:
        if name == "storage hits" and settings.storage is None:
            continue  # no such tier
        cells = []
        for share in (whole, steady):
            cells += [f"{read(share):,}", percent(share.rate(read(share)))]
        result.add_row(name, *cells)
    result.add_section()
    rates: tuple[tuple[str, Callable[[Share], float]], ...] = (
        ("hit rate, token-weighted", lambda share: share.hit_rate),
        (f"hit rate, pages of {settings.core.page_size}", lambda share: share.hit_rate_pages),
        ("hit rate, mean per request", lambda share: share.hit_rate_mean),
        ("ceiling, token-weighted", lambda share: share.ceiling_rate),
    )
    for name, rate in rates:
        result.add_row(name, "", percent(rate(whole)), "", percent(rate(steady)))
    return result


def _latency(times: Times, output: Output) -> Table:
    result = table("Latency (virtual time)", "", "mean", "p50", "p90", "p95", "p99")
    for name, one, scale, unit in (
        ("time to first token", times.ttft, 1.0, "s"),
        ("  in the queue", times.queue, 1.0, "s"),
        ("  waiting for loads", times.load, 1.0, "s"),
        ("  computing", times.compute, 1.0, "s"),
        ("time per output token", times.tpot, 1e3, "ms"),
        ("time between two tokens", times.itl, 1e3, "ms"),
    ):
        result.add_row(f"{name} ({unit})", *(f"{value * scale:,.3f}" for value in astuple(one)))
    result.add_section()
    result.add_row("makespan (s)", f"{times.makespan:,.1f}")
    result.add_row("output tokens per second", f"{output.tokens_per_s:,.1f}")
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


def _verdict(found: Result) -> Table:
    rows = []
    if found.refused:
        rows.append(("retries", retries(found.refused)))
    if found.preempted:
        times = "once" if found.preempted == 1 else f"{found.preempted:,} times"
        rows.append(("preempted", times))
    if found.stages is not None:
        rows.append(("stages idle", _idle(found.stages)))
    rows += _checked(found.checks)
    rows += [("digest", found.digest), ("wall time", f"{found.wall_s:.1f} s")]
    return pairs("Verdict", rows)


def _idle(stages: Stages) -> str:
    """How much of the time the pipeline had bubbles."""
    rates = [percent(rate) for rate in stages.idle_rate]
    shown = ", ".join(rates) if len(rates) <= _MOST_STAGES else f"{min(rates)} to {max(rates)}"
    return f"{shown} of the {stages.under_way_s:,.1f} s with passes under way"


def _checked(checks: Checks) -> list[tuple[str, str]]:
    if checks.level == "off":
        return [("checks", "off")]
    counts = f"{checks.incremental:,} incremental, {checks.full:,} full"
    rows = [("checks", f"{checks.level}: {checks.operations:,} operations, {counts}")]
    if checks.byte_checks:
        compared = f"{checks.byte_checks:,} comparisons, {checks.access_checks:,} accesses"
        rows.append(("bytes and order", compared))
    if checks.level == "every":
        rows.append(("decisions", f"{checks.specified:,} operations as the specification says"))
    if checks.not_judged:
        rows.append(("not judged", checks.not_judged))
    return [*rows, ("violations", f"{checks.violations:,}")]


def size_rows(trace: Trace, settings: Settings) -> list[tuple[str, str]]:
    """How large everything is, and why: what was left out, then one row for each pool, window,
    states and the page size. The first component's rows have only the tier's name. Bytes are those
    of one rank; with several ranks, the total of all is printed beside them."""
    core, pools = settings.core, settings.pools
    skipped, uncached = settings.skipped, settings.uncached
    rows = []
    if skipped.requests:
        count = len(skipped.requests)
        what = f"{count:,} request{'s' * (count > 1)} with {skipped.input_tokens:,} input tokens"
        rows.append(("skipped", f"{what}, too large for the device"))
    if uncached.requests:
        count = len(uncached.requests)
        what = f"{count:,} request{'s' * (count > 1)} with {uncached.input_tokens:,} input tokens"
        rows.append(("not cached", f"{what}, larger than the device pool: computed in full"))
    for tier, sizes, rules in (
        ("device", core.device_pages, pools.device_rules),
        ("host", core.host_pages, pools.host_rules),
    ):
        for place, pages in enumerate(sizes if any(sizes) else sizes[:1]):
            name = f"  {core.components[place]}" if place else tier
            rows.append((name, _pool(place, pages, settings, rules[place], tier == "host")))
    if pools.window:
        rows.append(("window", f"{pools.window:,} tokens"))
    if pools.interval:
        limit = pools.states_per_path
        most = f", at most {limit} on a path" if limit else ""
        rows.append(("states", f"every {pools.interval:,} tokens{most}"))
    rows.append(("page size", _page_size(trace, settings)))
    return rows


def model_rows(settings: Settings) -> list[tuple[str, str]]:
    model, ranks = settings.model, settings.parallelism
    each = " per rank" if settings.page_ranks * ranks.pp > 1 else ""
    page = f"{settings.rank_page_bytes[0]:,} bytes a page{each}, {model.kv_dtype}"
    weights = _bytes(settings.weight_bytes, ranks.ranks, model.weight_bytes)
    return [("model", f"{model.name}, {page}"), ("weights", f"{weights}, {model.weight_dtype}")]


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
