"""All curves that one command shows, as one record: hits of several policies at several capacities.

Chooses the capacities, asks each method for its figures and makes the document. Does not print.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..formats.base import Paged, Trace, need_identity
from ..terminal.tables import progress
from .distances import Column, Curve, lru_curve
from .policies import POLICIES, Optimum, Paths

NAMES = ("lru", *POLICIES, "optimum", "bound")
NINE_TENTHS = Fraction(9, 10)  # of the hits that host memory can add to those of the device
_MOST_DEFAULT = 16


@dataclass(frozen=True, slots=True)
class CurveOptions:
    """policies: besides lru. capacities: in pages; None for a choice that suits the trace. first:
    requests before it only warm the cache. device_pages: the device of two tiers. bytes_per_token:
    of the model, all ranks."""

    policies: tuple[str, ...] = ("optimum", "bound")
    capacities: tuple[int, ...] | None = None
    first: int = 0
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

    def rate(self, tokens: int) -> float:
        return tokens / self.input_tokens if self.input_tokens else 0.0

    def document(self) -> dict[str, object]:
        """The figures as JSON values; docs/json.md describes them."""
        size, lru, pages = self.lru.page_size, self.lru, self.capacities
        each = self.options.bytes_per_token
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
                name: {"hit_tokens": tokens, "hit_rates": [self.rate(one) for one in tokens]}
                for name, tokens in self.hit_tokens.items()
            },
            "tiers": self._tiers(),
        }

    def _tiers(self) -> dict[str, object] | None:
        device, host = self.options.device_pages, self.capacities
        if device is None:
            return None
        alone = self.lru.hit_tokens(device)
        return {
            "device_pages": device,
            "nine_tenths_host_pages": self.host_for(NINE_TENTHS),
            **{
                name: {
                    "host_pages": host.tolist(),
                    "device_hit_tokens": [alone] * len(host),
                    "host_hit_tokens": self.lru.host_tokens(device, host, exclusive).tolist(),
                }
                for name, exclusive in (("inclusive", False), ("exclusive", True))
            },
        }

    def host_for(self, share: Fraction) -> int:
        """The smallest inclusive host, in pages, that adds so much of what any host can add."""
        alone = self.lru.hit_tokens(self.options.device_pages or 0)
        return self.lru.pages_for(alone + share * (self.lru.unbounded - alone))


def curves_of(trace: Trace, paged: Paged, options: CurveOptions) -> Curves:
    """The curves of a trace. Shows its progress. Raises CallerError for lengths without prompts."""
    need_identity(trace, "hit rates")
    with progress("lru", len(trace.jobs)) as shown:
        lru = lru_curve(paged, options.first, shown)
    chosen = options.capacities or _default_capacities(lru)
    capacities = np.array(sorted(set(chosen)), dtype=np.int64)
    counted = trace.jobs.input_lengths[lru.first :]
    return Curves(
        trace=trace,
        options=options,
        lru=lru,
        requests=len(counted),
        input_tokens=int(counted.sum(dtype=np.int64)),
        capacities=capacities,
        hit_tokens=_hit_tokens(paged, lru, options.policies, capacities),
    )


def _hit_tokens(
    paged: Paged, lru: Curve, policies: tuple[str, ...], capacities: Column
) -> dict[str, list[int]]:
    """By policy, at each capacity. LRU has one pass for all of them; the others are replayed."""
    sizes: list[int] = capacities.tolist()
    found: dict[str, list[int]] = {"lru": lru.tokens_at(capacities).tolist()}
    if {"optimum", "bound"} & set(policies):
        optimum = Optimum(lru)
        kept = [optimum.at(size) for size in sizes]
        found["optimum"] = [one.tokens for one in kept]
        found["bound"] = [one.bound for one in kept]
    replayed = [name for name in policies if name in POLICIES]
    if replayed:
        paths = Paths(paged, lru.first)
        found |= {name: [] for name in replayed}
        with progress("curves", len(sizes), "points") as shown:
            for done, size in enumerate(sizes, 1):
                for name in replayed:
                    found[name].append(paths.hit_tokens(POLICIES[name](size)))
                shown(done)
    return {name: found[name] for name in dict.fromkeys(("lru", *policies))}


def _default_capacities(lru: Curve) -> set[int]:
    """From the largest request to where more memory adds nothing: two for each doubling, and the
    working set itself; the largest 16 of them."""
    last = max(lru.working_set, lru.largest, 1)
    first = max(1, min(lru.largest, last))
    sizes = {last}
    size = 1 << (last - 1).bit_length()
    while size > first and len(sizes) < _MOST_DEFAULT:
        sizes |= {one for one in (size, size * 3 // 4) if one < last}
        size //= 2
    return sizes | {max(1, size)}
