"""Limits that requests must keep, and goodput: the figures and the table.

docs/load.md defines everything. Does not decide which request keeps a limit; see
traces/replaying/load.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np
from rich.table import Table

from ..formats.base import Trace
from ..replaying.config import ReplayConfig as Settings
from ..replaying.load import NAMES, Kept, Slo, kept, spelled
from ..replaying.run import NS_PER_S, Latency, Run
from ..results.record import Class, Goodput
from ..terminal.tables import percent, table

_BOUNDS = (2_048, 8_192, 32_768)  # tokens of a prompt, between two classes
_LEAST_REQUESTS = 10  # in a batch
_MOST_TENANTS = 8
_STUDENT = {5: 2.78, 10: 2.26, 20: 2.09}  # standard errors of the mean of so many, at 95 %
_RULE_OF_THREE = 3


def goodput(trace: Trace, slo: Slo, latency: Latency) -> Goodput:
    served = latency.served
    each = kept(slo, served)
    attained = _all_kept(each, len(latency.requests))
    count, given = int(attained.sum()), dict(slo.limits)
    tokens, seconds = int(served.output_tokens[attained].sum()), latency.makespan_ns / NS_PER_S
    return Goodput(
        **{f"{name}_s": given[name] / NS_PER_S if name in given else None for name in NAMES},
        attained_requests=count,
        attained_rate=count / len(attained) if len(attained) else 0.0,
        attained_error=_chance(latency, attained),
        goodput_requests_per_s=count / seconds if seconds else 0.0,
        goodput_tokens_per_s=tokens / seconds if seconds else 0.0,
        missed={name: int((~each[name]).sum()) if name in each else None for name in NAMES},
        classes=list(_classes(trace, latency, attained)),
    )


def _chance(latency: Latency, attained: Kept) -> float | None:
    """How far the part of the requests that keep the limits may be from that of other traces of the
    same traffic, 19 times of 20: by how much it differs from one fifth, tenth or twentieth of the
    requests to the next, in the order of their arrivals (batch means; the largest counts, since
    queues last). If all are alike, by the rule of three."""
    count = len(attained)
    if count < max(_STUDENT) * _LEAST_REQUESTS:
        return None
    order = np.argsort([one.arrival_ns for one in latency.requests], kind="stable")
    errors = [_RULE_OF_THREE / count]
    for blocks, times in _STUDENT.items():
        rates = [float(one.mean()) for one in np.array_split(attained[order], blocks)]
        errors.append(times * float(np.std(rates, ddof=1)) / sqrt(blocks))
    return max(errors)


def _all_kept(each: dict[str, Kept], requests: int) -> Kept:
    attained = np.ones(requests, dtype=np.bool_)
    for one in each.values():
        attained &= one
    return attained


def _classes(trace: Trace, latency: Latency, attained: Kept) -> Iterator[Class]:
    """By the length of the prompt, and by tenant if there are several and not too many."""
    lengths = np.array([one.input_length for one in latency.requests], dtype=np.int64)
    for least, most in zip((0, *_BOUNDS), (*_BOUNDS, None), strict=True):
        chosen = (lengths >= least) & (lengths < (most or 1 << 62))
        if chosen.any():
            name = f"{least:,} to {most - 1:,}" if most else f"{least:,} or more"
            yield Class("prompt_tokens", name, int(chosen.sum()), int(attained[chosen].sum()))
    if 1 < len(trace.tenant_names) <= _MOST_TENANTS:
        tenants = trace.tenants[[one.request for one in latency.requests]]
        for number, name in enumerate(trace.tenant_names):
            chosen = tenants == number
            if chosen.any():
                yield Class("tenant", name, int(chosen.sum()), int(attained[chosen].sum()))


def limits_missed(slo: Slo, latency: Latency) -> dict[int, list[str]]:
    """The limits that each request misses, by its number; none for those that keep all."""
    found: dict[int, list[str]] = {}
    for name, one in kept(slo, latency.served).items():
        for place in np.flatnonzero(~one).tolist():
            found.setdefault(latency.requests[place].request, []).append(name)
    return found


def limits_table(
    settings: Settings, run: Run, found: Goodput | None, verbose: bool
) -> Table | None:
    """The limits and the goodput; None without limits or without a clock. verbose: also the
    requests of each class."""
    if settings.slo is None or run.latency is None or found is None:
        return None
    requests = len(run.latency.requests)
    result = table("Limits (--slo)", "", "limit", "requests that keep it", "")
    for name, limit in settings.slo.limits:
        keep = requests - (found.missed[name] or 0)
        share = keep / requests if requests else 0.0
        result.add_row(name, spelled(limit), f"{keep:,}", percent(share))
    result.add_row("all", "", f"{found.attained_requests:,}", percent(found.attained_rate or 0.0))
    for one in found.classes if verbose else ():
        what = "tenant" if one.by == "tenant" else "prompts of"
        result.add_row(f"  {what} {one.name}", "", f"{one.attained_requests:,}", percent(one.rate))
    result.add_section()
    per_s = f"{found.goodput_requests_per_s:,.3f}"
    result.add_row("goodput, requests per second", "", per_s, "")
    per_s = f"{found.goodput_tokens_per_s:,.1f}"
    result.add_row("goodput, output tokens per second", "", per_s, "")
    return result
