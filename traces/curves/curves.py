"""All curves that one command shows, as one record: hits of several policies at several capacities.

Chooses the capacities, asks each method for its figures and makes the document. Does not print.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np

from hicache.core.errors import CallerError

from ..formats.base import Paged, Trace, need_identity
from ..terminal.progress import progress
from . import replay
from .distances import Curve, exclusive, inclusive, lru_curve
from .optimum import Kept, Optimum
from .runs import Column
from .splits import Group, split

ONE_PASS = ("lru", "optimum", "bound")
ALL: Literal["all"] = "all"  # every capacity at which the LRU curve bends
NINE_TENTHS = Fraction(9, 10)  # of the hits that host memory can add to those of the device
_MOST_DEFAULT = 16

Wanted: TypeAlias = tuple[int, ...] | Literal["all"] | None


def policies() -> list[str]:
    """Every policy that a curve can show."""
    return [*ONE_PASS[:1], *replay.POLICIES, *ONE_PASS[1:]]


@dataclass(frozen=True, slots=True)
class CurveOptions:
    """capacities: in pages, ascending; None for a choice that suits the trace, "all" for every bend
    of the LRU curve. first: requests before it only warm the cache. by: see splits. device_pages:
    the device of two tiers. bytes_per_token: of the model, all ranks. policies: besides lru."""

    policies: tuple[str, ...] = ("optimum", "bound")
    capacities: Wanted = None
    first: int = 0
    by: str | None = None
    device_pages: int | None = None
    bytes_per_token: int | None = None


@dataclass(frozen=True, slots=True)
class Curves:
    """hit_tokens: by policy, one figure for each capacity. input_tokens: of the counted
    requests."""

    trace: Trace
    options: CurveOptions
    lru: Curve
    requests: int
    input_tokens: int
    capacities: Column
    hit_tokens: dict[str, list[int]]
    groups: list[Group]

    def rate(self, tokens: int) -> float:
        return tokens / self.input_tokens if self.input_tokens else 0.0

    def document(self) -> dict[str, object]:
        """The figures as JSON values; docs/json.md describes them."""
        size, lru, options = self.lru.page_size, self.lru, self.options
        each = options.bytes_per_token
        pages = self.capacities
        return {
            "kind": "curve",
            "trace": {
                "path": self.trace.path,
                "format": self.trace.format,
                "requests": len(self.trace.jobs),
                "block_size": self.trace.block_size,
            },
            "first_request": lru.first,
            "requests": self.requests,
            "page_size": size,
            "bytes_per_token": each,
            "input_tokens": self.input_tokens,
            "unique_tokens": lru.unique * size,
            "working_set_tokens": lru.working_set * size,
            "unbounded_hit_tokens": lru.unbounded,
            "largest_request_tokens": lru.largest * size,
            "capacities_pages": pages.tolist(),
            "capacities_tokens": (pages * size).tolist(),
            "capacities_bytes": None if each is None else (pages * size * each).tolist(),
            "policies": {
                name: {
                    "hit_tokens": tokens,
                    "hit_rates": [self.rate(one) for one in tokens],
                    "method": method(name),
                }
                for name, tokens in self.hit_tokens.items()
            },
            "split": self._split(),
            "tiers": self._tiers(),
        }

    def _split(self) -> dict[str, object] | None:
        if self.options.by is None:
            return None
        return {
            "by": self.options.by,
            "groups": [
                {
                    "name": group.name,
                    "requests": group.requests,
                    "input_tokens": group.input_tokens,
                    "unbounded_hit_tokens": group.curve.unbounded,
                    "lru_hit_tokens": group.curve.tokens_at(self.capacities).tolist(),
                }
                for group in self.groups
            ],
        }

    def _tiers(self) -> dict[str, object] | None:
        device = self.options.device_pages
        if device is None:
            return None
        host, hits = self.capacities, self.lru.hit_tokens(device)
        most = hits + NINE_TENTHS * (self.lru.unbounded - hits)
        return {
            "device_pages": device,
            "nine_tenths_host_pages": self.lru.pages_for(most),
            "inclusive": inclusive(self.lru, device, host).document(host),
            "exclusive": exclusive(self.lru, device, host).document(host),
        }


def method(policy: str) -> str:
    """How the figures of a policy are made."""
    if policy in ("optimum", "bound"):
        return "intervals"
    return "stack distances" if policy == "lru" else "replay"


def curves_of(trace: Trace, paged: Paged, options: CurveOptions) -> Curves:
    """The curves of a trace. Shows its progress where policies are replayed.

    Raises CallerError for a trace with lengths only, and for options that it does not allow.
    """
    need_identity(trace, "hit rates")
    _check(options, len(trace.jobs))
    with progress("lru", len(trace.jobs)) as shown:
        lru = lru_curve(paged, options.first, shown)
    capacities = _capacities(lru, options.capacities)
    counted = trace.jobs.input_lengths[lru.first :]
    return Curves(
        trace=trace,
        options=options,
        lru=lru,
        requests=len(counted),
        input_tokens=int(counted.sum(dtype=np.int64)),
        capacities=capacities,
        hit_tokens=_figures(paged, lru, options, capacities),
        groups=split(trace, lru, options.by) if options.by else [],
    )


def _figures(
    paged: Paged, lru: Curve, options: CurveOptions, capacities: Column
) -> dict[str, list[int]]:
    """Hit tokens of each policy at each capacity."""
    found: dict[str, list[int]] = {"lru": lru.tokens_at(capacities).tolist()}
    wanted = [name for name in dict.fromkeys(options.policies) if name not in found]
    hits = _Hits(paged, lru).tokens
    with progress("curves", len(wanted) * len(capacities), "points") as shown:
        for place, name in enumerate(wanted):
            found[name] = []
            for done, capacity in enumerate(capacities.tolist(), place * len(capacities)):
                found[name].append(hits(name, capacity))
                shown(done + 1)
    return found


class _Hits:
    """Hit tokens of one trace."""

    def __init__(self, paged: Paged, lru: Curve) -> None:
        self._paged = paged
        self._lru = lru
        self._optimum: Optimum | None = None
        self._kept: dict[int, Kept] = {}  # for the optimum and the bound
        self._paths: replay.Paths | None = None

    def tokens(self, policy: str, capacity: int) -> int:
        if policy in ONE_PASS:
            kept = self._kept.get(capacity)
            if kept is None:
                self._optimum = self._optimum or Optimum(self._lru)
                kept = self._kept[capacity] = self._optimum.at(capacity)
            return kept.tokens if policy == "optimum" else kept.bound
        self._paths = self._paths or replay.Paths(self._paged, self._lru.first)
        return replay.hit_tokens(self._paths, replay.POLICIES[policy](capacity))


def _capacities(lru: Curve, wanted: Wanted) -> Column:
    """The wanted capacities, or those from the largest request to where more memory adds nothing:
    two for each doubling, and the working set itself; the largest 16 of them."""
    if isinstance(wanted, tuple):
        return np.array(sorted(set(wanted)), dtype=np.int64)
    if wanted == ALL:
        bends = lru.bends()
        return bends[bends > 0] if bends.any() else np.ones(1, dtype=np.int64)
    last = max(lru.working_set, lru.largest, 1)
    first = max(1, min(lru.largest, last))
    sizes = {last}
    size = 1 << (last - 1).bit_length()
    while size > first and len(sizes) < _MOST_DEFAULT:
        sizes |= {one for one in (size, size * 3 // 4) if one < last}
        size //= 2
    sizes.add(max(1, size))
    return np.array(sorted(sizes), dtype=np.int64)


def _check(options: CurveOptions, requests: int) -> None:
    if options.first >= requests:
        raise CallerError(
            f"--first: expected a request of the trace, which has {requests}, found "
            f"{options.first}; name an earlier one"
        )
    others = [name for name in options.policies if name != "lru"]
    if options.capacities == ALL and others:
        raise CallerError(
            f"--capacities {ALL}: expected lru alone, which has one pass for all of them, found "
            f"--policies {','.join(others)}; name some capacities"
        )
