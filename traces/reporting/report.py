"""The report of a replay, for people: 80 columns, no colour when piped.

Every hit rate is printed with the name of its definition. Does not compute anything that the
`--json` document needs too; see account and run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import TextIO

from rich.table import Table
from rich.text import Text

from ..expected.words import sentence
from ..formats.base import Trace
from ..replaying.account import Share
from ..replaying.run import NS_PER_S, Run, Spread
from ..replaying.settings import Settings
from ..replaying.streaming.parts import Streaming
from ..terminal.tables import console, pairs, percent, table
from ..terminal.text import name as shown
from .components import NO_TRUTH, component_tables, order_table, turn_table
from .error_bars import expected_of
from .fleet import fleet_tables
from .losses import losses_table
from .refusals import retries
from .size_rows import each_rank, hardware_row, model_rows, size_rows
from .slo import limits_table
from .stored import lost_table, prefetch_table, setting_rows, transfer_rows


def print_report(trace: Trace, settings: Settings, run: Run, stream: TextIO | None = None) -> None:
    out = console(stream)
    if run.interrupted:
        served = f"{run.account.whole().requests:,} of {len(trace.jobs):,} requests"
        out.print(Text.assemble(("Interrupted.", "bold"), f" This report covers {served}.\n"))
    out.print(_setting(trace, settings))
    out.print(_hits(run.account.whole(), run.account.steady(), settings))
    for rows in component_tables(settings, run):
        out.print(rows)
    if len(run.components) > 1 and trace.block_size is not None:
        others = " and ".join(use.name for use in run.components[1:])
        out.print("\n" + NO_TRUTH.format(names=others))
    if (turns := turn_table(run)) is not None:
        out.print(turns)
    if run.latency is not None:
        out.print(_latency(run))
        out.print("\n" + sentence(expected_of(settings, run, run.latency)), markup=False)
    if (limits := limits_table(trace, settings, run)) is not None:
        out.print(limits)
    if run.fleet is not None:
        for rows in fleet_tables(run.fleet):
            out.print(rows)
    if (prefetches := prefetch_table(settings, run)) is not None:
        out.print(prefetches)
    if (lost := lost_table(run)) is not None:
        out.print(lost)
    if (losses := losses_table(run)) is not None:
        out.print(losses)
    out.print(_transfers(settings, run))
    if (orders := order_table(settings, run)) is not None:
        out.print(orders)
    out.print(_verdict(run))


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


def _hits(whole: Share, steady: Share, settings: Settings) -> Table:
    result = table("Prompt tokens", "", "whole trace", "", "last 50 %", "")
    counts: tuple[tuple[str, Callable[[Share], int]], ...] = (
        ("device hits", lambda share: share.device),
        ("host hits", lambda share: share.host),
        ("storage hits", lambda share: share.storage),
        ("computed", lambda share: share.computed_tokens),
        ("  first seen", lambda share: share.first_seen),
        ("  evicted or not ready", lambda share: share.lost),
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
        (f"hit rate, pages of {settings.core.page_size}", lambda share: share.block_rate),
        ("hit rate, mean per request", lambda share: share.mean_rate),
        ("ceiling, token-weighted", lambda share: share.rate(share.ceiling)),
    )
    for name, rate in rates:
        result.add_row(name, "", percent(rate(whole)), "", percent(rate(steady)))
    return result


def _latency(run: Run) -> Table:
    assert run.latency is not None
    result = table("Latency (virtual time)", "", "mean", "p50", "p90", "p95", "p99")
    for name, key, scale, unit in (
        ("time to first token", "ttft", 1.0, "s"),
        ("  in the queue", "queue", 1.0, "s"),
        ("  waiting for loads", "load", 1.0, "s"),
        ("  computing", "compute", 1.0, "s"),
        ("time per output token", "tpot", 1e3, "ms"),
        ("time between two tokens", "itl", 1e3, "ms"),
    ):
        result.add_row(f"{name} ({unit})", *_points(run.latency.spreads[key], scale))
    seconds = run.latency.makespan_ns / NS_PER_S
    result.add_section()
    result.add_row("makespan (s)", f"{seconds:,.1f}")
    result.add_row("output tokens per second", f"{run.latency.tokens_per_s:,.1f}")
    return result


def _points(times: Spread, scale: float) -> list[str]:
    return [f"{value * scale:,.3f}" for value in astuple(times)]


def _transfers(settings: Settings, run: Run) -> Table:
    alone = len(run.components) == 1
    first = run.components[0]
    pages_of, size = "pages" if alone else "pages of full", "GB" + each_rank(settings)
    result = table("Tiers", "", pages_of, size, "busy (s)")
    for way, name, pages in (
        ("d2h", "device to host", first.backed_up),
        ("h2d", "host to device", first.loaded),
    ):
        moved = run.transfers[way]
        busy = "-" if moved.busy_ns is None else f"{moved.busy_ns / NS_PER_S:,.3f}"
        result.add_row(name, f"{pages:,}", f"{moved.bytes / 1e9:,.2f}", busy)
    for row in transfer_rows(run):
        result.add_row(*row)
    result.add_row("evicted from device", f"{run.evicted[0]:,}", "", "")
    result.add_row("evicted from host", f"{run.evicted[1]:,}", "", "")
    return result


def _verdict(run: Run) -> Table:
    rows = []
    if run.refused:
        rows.append(("retries", retries(run.refused)))
    if run.preempted:
        times = "once" if run.preempted == 1 else f"{run.preempted:,} times"
        rows.append(("preempted", times))
    rows += _checked(run)
    if run.streaming is not None:
        rows.append(("read once", _read_once(run.streaming)))
    rows += [("digest", run.digest), ("wall time", f"{run.wall_s:.1f} s")]
    return pairs("Verdict", rows)


def _read_once(streaming: Streaming) -> str:
    """How exact the figures of a trace are that was not held."""
    inexact = []
    if not streaming.exact:
        inexact.append("percentiles within 0.05 %")
    if streaming.group > 1:
        inexact.append(f"the last half within {streaming.group:,} requests")
    if not streaming.remembered:
        inexact.append("the ceiling without repeats of long ago")
    return "all figures exact" if not inexact else f"exact but for {', '.join(inexact)}"


def _checked(run: Run) -> list[tuple[str, str]]:
    checks = run.checks
    if checks.level == "off":
        return [("checks", "off")]
    counts = f"{checks.incremental:,} incremental, {checks.full:,} full"
    rows = [("checks", f"{checks.level}: {checks.operations:,} operations, {counts}")]
    if checks.byte_checks:
        compared = f"{checks.byte_checks:,} pages by SHA-256, {checks.access_checks:,} accesses"
        rows.append(("bytes and order", compared))
    if checks.level == "every":
        rows.append(("decisions", f"{checks.specified:,} operations as the specification says"))
    if checks.unjudged:
        rows.append(("not judged", checks.unjudged))
    return [*rows, ("violations", f"{checks.violations:,}")]
