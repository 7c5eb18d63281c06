"""What a replay with several replicas tells: its tables, its keys of `--json`, its sentences.

Does not count anything; see traces/replaying/fleet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
from rich.table import Table

from hicache.core.types import Pages
from sim.fleet.handoff import Trip

from ..replaying.account import Share
from ..replaying.fleet.use import FleetUse, ReplicaUse, imbalance
from ..replaying.run import NS_PER_S, spread
from ..terminal.tables import percent, table
from .advice import NEGLIGIBLE

_UNEVEN = 1.2  # busiest over mean


def fleet_tables(use: FleetUse) -> Iterator[Table]:
    """A row for each replica; with decode replicas, the way between them."""
    clock = any(len(one.ttft_ns) for one in use.replicas)
    columns = ["requests", "hit rate", "computed", "output"]
    rows = table("Replicas (tokens)", "", *columns, *(["TTFT p90 (s)"] if clock else []))
    for place, one in enumerate(use.replicas):
        cells = [f"{one.requests:,}", *_prompts(one), f"{one.output_tokens:,}" if clock else "-"]
        if clock:
            cells.append(f"{spread(one.ttft_ns).p90:,.3f}" if len(one.ttft_ns) else "-")
        rows.add_row(f"{place}  {one.role}", *cells)
    rows.add_section()
    shares = _imbalance(use)
    last = ["", f"{shares['computed_tokens']:.2f}", ""]
    rows.add_row("largest / mean", f"{shares['requests']:.2f}", *last, *([""] if clock else []))
    yield rows
    if use.link is not None:
        yield _handoff_table(use)


def _prompts(one: ReplicaUse) -> list[str]:
    if not one.input_tokens:
        return ["-", "-"]
    return [percent(one.hit_rate), f"{one.computed_tokens:,}"]


def _handoff_table(use: FleetUse) -> Table:
    rows = table("From prefill to decode", "", "mean", "p50", "p90", "p99")
    for name, times in _parts(use).items():
        one = spread(times)
        cells = [f"{value:,.3f}" for value in (one.mean, one.p50, one.p90, one.p99)]
        rows.add_row(f"{_WORDS[name]} (s)", *cells)
    assert use.link is not None
    rows.add_section()
    rows.add_row("moved (GB)", f"{use.link.bytes / 1e9:,.2f}", "", "", "")
    return rows


_WORDS = {
    "decode_wait": "waiting for decode pages",
    "link_wait": "waiting for the link",
    "link": "moving",
}


def _parts(use: FleetUse) -> dict[str, Pages]:
    """The times of the requests that arrived on their decode replica."""
    trips = [one for one in (use.trips or {}).values() if one.arrived_ns >= 0]
    return {name: np.array([_times(one)[name] for one in trips], np.int64) for name in _WORDS}


def _times(trip: Trip) -> dict[str, int]:
    return {
        "decode_wait": trip.admitted_ns - trip.left_ns,
        "link_wait": trip.began_ns - trip.admitted_ns,
        "link": trip.arrived_ns - trip.began_ns,
    }


def _imbalance(use: FleetUse) -> dict[str, float]:
    return {
        "requests": imbalance([one.requests for one in use.prefilling]),
        "computed_tokens": imbalance([one.computed_tokens for one in use.prefilling]),
    }


def fleet_document(use: FleetUse) -> dict[str, object]:
    found: dict[str, object] = {
        "replicas": [_replica(place, one) for place, one in enumerate(use.replicas)],
        "imbalance": _imbalance(use),
        "elsewhere_tokens": use.elsewhere_tokens,
    }
    if use.link is not None and use.trips is not None:
        trips = [one for one in use.trips.values() if one.arrived_ns >= 0]
        found["kv_link"] = {
            "bytes_total": use.link.bytes,
            "busy_s": use.link.busy_ns / NS_PER_S,
            "requests": len(trips),
            "moved_pages": sum(one.pages for one in trips),
            "cached_pages": sum(one.cached for one in trips),
        }
        found["handoff_s"] = {name: asdict(spread(times)) for name, times in _parts(use).items()}
    return found


def _replica(place: int, one: ReplicaUse) -> dict[str, object]:
    prefills = bool(one.input_tokens)
    return {
        "replica": place,
        "role": one.role,
        "requests": one.requests,
        "input_tokens": one.input_tokens,
        "hit_tokens": one.hit_tokens,
        "hit_rate": one.hit_rate if prefills else None,
        "computed_tokens": one.computed_tokens,
        "output_tokens": one.output_tokens,
        "ttft_s": asdict(spread(one.ttft_ns)) if len(one.ttft_ns) else None,
        "evicted_pages": {"device": one.evicted_pages[0], "host": one.evicted_pages[1]},
        "checked_operations": one.operations,
        "digest": one.digest,
    }


def record_of(use: FleetUse, request: int) -> dict[str, object]:
    """The keys of one request's record."""
    found: dict[str, object] = {"replica": use.choices[request]}
    if use.trips is None:
        return found
    trip = use.trips.get(request)
    if trip is None:  # its only token came from the prefill replica
        return {**found, "decode_replica": None}
    times = {f"{name}_ns": time for name, time in _times(trip).items()}
    return {**found, "decode_replica": trip.decode, **times, "link_bytes": trip.bytes}


def way_of(use: FleetUse, request: int) -> str:
    """Where one request went, as a sentence."""
    way = f"The router sent it to replica {use.choices[request]} of {len(use.replicas)}"
    trip = (use.trips or {}).get(request)
    if trip is None or trip.arrived_ns < 0:
        return f"{way}."
    times = {name: f"{time / NS_PER_S:.3f} s" for name, time in _times(trip).items()}
    return (
        f"{way}; it decoded on replica {trip.decode}, after {times['decode_wait']} of waiting for "
        f"pages there, {times['link_wait']} for the link, and a transfer of {times['link']}."
    )


def fleet_sentences(use: FleetUse, share: Share) -> list[str]:
    """How even the work was, and what routing alone kept from being hit."""
    count = len(use.prefilling)
    if count < 2:
        return []
    told = []
    uneven = _imbalance(use)["computed_tokens"]
    if uneven >= _UNEVEN:
        told.append(f"The busiest of {count} replicas computed {uneven:.1f} x the mean.")
    if share.rate(use.elsewhere_tokens) >= NEGLIGIBLE:
        part = percent(share.rate(use.elsewhere_tokens), 1)
        told.append(
            f"{use.elsewhere_tokens:,} prompt tokens ({part}) had been sent to other "
            "replicas only, so a larger cache would not hit them where they were sent now."
        )
    return told
