"""What several replicas did: the share of each, and what a request could hit where it was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from hicache.core.types import Pages
from sim.fleet.fleet import FleetResult
from sim.fleet.handoff import Trip
from sim.fleet.options import FleetOptions
from sim.workload import Job

from ..formats.base import Paged
from ..results.record import Fleet, Imbalance, KvLink, Replica
from .account import Tokens, ceiling_of
from .observing import Team
from .run import NS_PER_S, FleetUse, Run, spread
from .sizes import Kept, Skipped

MIXED, PREFILL, DECODE = "mixed", "prefill", "decode"


def with_fleet(
    run: Run,
    whole: Paged,
    paged: Paged,
    options: FleetOptions,
    team: Team,
    choices: Mapping[int, int],
    digests: Sequence[str],
    timed: FleetResult | None = None,
) -> Run:
    """The results with those of each replica. whole: the trace with the requests that were left
    out. timed: None without a clock."""
    ceilings = _ceilings(paged, choices, options, whole_prompts=timed is None)
    rows = list(run.account.rows())
    chosen = [choices[row.request] for row in rows]
    replicas = []
    for place in range(options.members):
        own = [row for row, replica in zip(rows, chosen, strict=True) if replica == place]
        routed = place < options.replicas
        role = (PREFILL if options.decode else MIXED) if routed else DECODE
        prompts, hits = sum(row.input_tokens for row in own), sum(row.hit_tokens for row in own)
        ttft_ns = _ttft(timed, place) if routed else ()
        replicas.append(
            Replica(
                replica=place,
                role=role,
                requests=len(own if routed or timed is None else timed.members[place].requests),
                input_tokens=prompts,
                hit_tokens=hits,
                hit_rate=hits / prompts if prompts else None,
                computed_tokens=prompts - hits,
                output_tokens=_sampled(timed, place, role),
                ttft_s=spread(np.array(ttft_ns, dtype=np.int64)) if ttft_ns else None,
                evicted_pages=team.evicted(place),
                checked_operations=team.watches[place].operations if team.watches else 0,
                digest=digests[place],
            )
        )
    elsewhere = sum(row.ceiling - int(ceilings[row.request]) for row in rows)
    prefilling = [one for one in replicas if one.role != DECODE]
    uneven = Imbalance(
        imbalance([one.requests for one in prefilling]),
        imbalance([one.computed_tokens for one in prefilling]),
    )
    found, trips = Fleet(replicas, uneven, elsewhere), None
    if options.decode and timed is not None:
        trips = timed.trips
        moved = [one for one in trips.values() if one.arrived_ns >= 0]
        found = structs.replace(
            found,
            kv_link=KvLink(
                bytes_total=timed.link.bytes,
                busy_s=timed.link.busy_ns / NS_PER_S,
                requests=len(moved),
                moved_pages=sum(one.pages for one in moved),
                cached_pages=sum(one.cached for one in moved),
            ),
            handoff_s={
                name: spread(np.array([trip_times(one)[name] for one in moved], np.int64))
                for name in ("decode_wait", "link_wait", "link")
            },
        )
    return replace(
        run, history=team.history(whole, ceilings), fleet=FleetUse(found, choices, trips)
    )


def trip_times(trip: Trip) -> dict[str, int]:
    """Nanoseconds of the parts of a way from prefill to decode."""
    return {
        "decode_wait": trip.admitted_ns - trip.left_ns,
        "link_wait": trip.began_ns - trip.admitted_ns,
        "link": trip.arrived_ns - trip.began_ns,
    }


def imbalance(amounts: Sequence[int]) -> float:
    """The largest over the mean; 1 if all are equal, or nothing was done."""
    total = sum(amounts)
    return max(amounts) * len(amounts) / total if total else 1.0


def _ceilings(
    paged: Paged, choices: Mapping[int, int], options: FleetOptions, whole_prompts: bool
) -> Tokens:
    """Prompt tokens of each request that an earlier one sent to the same replica had. A prefill
    replica does not have the answers."""
    numbers = paged.jobs.numbers
    places = np.array([choices.get(number, -1) for number in numbers.tolist()])
    found = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.int32)
    for place in range(options.replicas):
        others = frozenset(numbers[places != place].tolist())
        sent = (_Prompts if options.decode else Kept)(paged, Skipped(others))
        own = ceiling_of(sent, whole_prompts)
        found[: len(own)] += own
    return found


class _Prompts(Kept):
    """A trace of which no answer is known."""

    def chain(self, job: Job) -> Pages:
        return super().chain(job)[: job.input_length // self.page_size]


def _sampled(timed: FleetResult | None, place: int, role: str) -> int:
    """Tokens that a replica sampled. A prefill replica samples the first of each answer."""
    if timed is None:
        return 0
    first = 1 if role == DECODE else 0
    return sum(max(1, one.output_length) - first for one in timed.members[place].requests)


def _ttft(timed: FleetResult | None, place: int) -> list[int]:
    requests = () if timed is None else timed.members[place].requests
    return [one.first_token_ns - one.arrival_ns for one in requests]
