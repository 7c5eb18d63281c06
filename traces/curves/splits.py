"""The LRU curve of parts of a trace: of sessions, of tenants, of depths in the prompt.

All requests share one cache, as ever; only the hits are counted apart. So the parts add up to the
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError

from ..formats.base import Trace
from .distances import Curve
from .runs import Column, Runs

BY = ("session", "tenant", "depth")
_MOST_GROUPS = 10
_LEAST_DEPTH = 1 << 10  # tokens


@dataclass(frozen=True, slots=True)
class Group:
    """requests: that have such tokens. input_tokens: of their prompts, in this part."""

    name: str
    requests: int
    input_tokens: int
    curve: Curve


def split(trace: Trace, curve: Curve, by: str) -> list[Group]:
    """The parts of the counted requests, the largest first; of depths, the shallowest first.

    Raises CallerError for a trace that does not name its sessions or tenants.
    """
    if by == "depth":
        return list(_depths(trace, curve))
    name: Callable[[int], str]
    if by == "session":
        numbers = trace.jobs.sessions.astype(np.int64)
        known = bool((numbers >= 0).any())
        name = _session
    else:
        numbers, names = trace.tenants.astype(np.int64), trace.tenant_names
        known = any(names)
        name = names.__getitem__
    if not known:
        raise CallerError(
            f"--by {by}: expected a trace that names the {by} of its requests, found none in "
            f"{trace.path}; use --by depth"
        )
    return list(_groups(trace, curve, numbers, name))


def _session(request: int) -> str:
    return f"from request {request}"


def _groups(
    trace: Trace, curve: Curve, numbers: Column, name: Callable[[int], str]
) -> Iterator[Group]:
    """numbers: the group of each request, -1 for none."""
    counted = np.arange(len(numbers)) >= curve.first
    tokens = trace.jobs.input_lengths.astype(np.int64) * counted
    sums = np.bincount(numbers[numbers >= 0], tokens[numbers >= 0])
    shown = [int(one) for one in np.argsort(-sums, kind="stable")[:_MOST_GROUPS] if sums[one]]
    for group in shown:
        yield _group(name(group) or "no name", curve, tokens, numbers == group)
    rest = ~np.isin(numbers, shown) & (tokens > 0)
    if rest.any():
        yield _group("all others", curve, tokens, rest)


def _group(name: str, curve: Curve, tokens: Column, which: NDArray[np.bool_]) -> Group:
    requests = int(np.count_nonzero(which & (tokens > 0)))
    return Group(name, requests, int(tokens[which].sum()), curve.only(which[curve.runs.request]))


def _depths(trace: Trace, curve: Curve) -> Iterator[Group]:
    """Parts of prompts whose ends double, from 1,024 tokens or a page on."""
    size = curve.page_size
    prompts = trace.jobs.input_lengths.astype(np.int64)[curve.first :]
    start, end = 0, -(-max(_LEAST_DEPTH, size) // size)
    while start * size < prompts.max(initial=0):
        inside = np.clip(prompts, start * size, end * size) - start * size
        name = f"{start * size:,} to {end * size:,}"
        part = _between(curve, start, end)
        yield Group(name, int(np.count_nonzero(inside)), int(inside.sum()), part)
        start, end = end, 2 * end


def _between(curve: Curve, start: int, end: int) -> Curve:
    """The curve of the pages of paths from depth `start` until `end`."""
    runs = curve.runs
    first = np.maximum(runs.depth, start)
    last = np.minimum(runs.depth + runs.pages, end)
    whole = runs.depth + runs.pages == last
    cut = replace(
        curve,
        runs=Runs(runs.last, runs.request, first, last - first),
        distance=curve.distance + first - runs.depth,
        short=curve.short * whole,
    )
    return cut.only(last > first)
