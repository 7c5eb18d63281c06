"""What a replay with several replicas tells: its tables, the way of one request.

Does not count anything; see traces/replaying/fleet.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from ..replaying.fleet import trip_times
from ..replaying.run import NS_PER_S, FleetUse
from ..results.record import Fleet, Replica
from ..terminal.tables import percent, table


def fleet_tables(fleet: Fleet) -> Iterator[Table]:
    """A row for each replica; with decode replicas, the way between them."""
    clock = any(one.ttft_s for one in fleet.replicas)
    columns = ["requests", "hit rate", "computed", "output"]
    rows = table("Replicas (tokens)", "", *columns, *(["TTFT p90 (s)"] if clock else []))
    for one in fleet.replicas:
        cells = [f"{one.requests:,}", *_prompts(one), f"{one.output_tokens:,}" if clock else "-"]
        if clock:
            cells.append(f"{one.ttft_s.p90:,.3f}" if one.ttft_s else "-")
        rows.add_row(f"{one.replica}  {one.role}", *cells)
    rows.add_section()
    last = ["", f"{fleet.imbalance.computed_tokens:.2f}", ""]
    first = f"{fleet.imbalance.requests:.2f}"
    rows.add_row("largest / mean", first, *last, *([""] if clock else []))
    yield rows
    if fleet.kv_link is None:
        return
    rows = table("From prefill to decode", "", "mean", "p50", "p90", "p99")
    for name, times in (fleet.handoff_s or {}).items():
        cells = [f"{value:,.3f}" for value in (times.mean, times.p50, times.p90, times.p99)]
        rows.add_row(f"{_WORDS[name]} (s)", *cells)
    rows.add_section()
    rows.add_row("moved (GB)", f"{fleet.kv_link.bytes_total / 1e9:,.2f}", "", "", "")
    yield rows


def _prompts(one: Replica) -> list[str]:
    if one.hit_rate is None:
        return ["-", "-"]
    return [percent(one.hit_rate), f"{one.computed_tokens:,}"]


_WORDS = {
    "decode_wait": "waiting for decode pages",
    "link_wait": "waiting for the link",
    "link": "moving",
}


def record_of(use: FleetUse, request: int) -> dict[str, object]:
    """The keys of one request's record."""
    found: dict[str, object] = {"replica": use.choices[request]}
    if use.trips is None:
        return found
    trip = use.trips.get(request)
    if trip is None:  # its only token came from the prefill replica
        return {**found, "decode_replica": None}
    times = {f"{name}_ns": time for name, time in trip_times(trip).items()}
    return {**found, "decode_replica": trip.decode, **times, "link_bytes": trip.bytes}


def way_rows(use: FleetUse, request: int) -> list[tuple[str, str]]:
    """Where one request went."""
    rows = [("replica", f"{use.choices[request]} of {len(use.figures.replicas)}")]
    trip = (use.trips or {}).get(request)
    if trip is None or trip.arrived_ns < 0:
        return rows
    times = [f"{_WORDS[name]} {ns / NS_PER_S:.3f} s" for name, ns in trip_times(trip).items()]
    return [*rows, ("decode replica", str(trip.decode)), ("until there", ", ".join(times))]
