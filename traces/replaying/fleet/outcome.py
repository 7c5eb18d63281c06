"""What several replicas did: the share of each, and what a request could hit where it was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hicache.core.types import NO_PAGES, Pages
from sim.fleet.fleet import FleetResult
from sim.fleet.options import FleetOptions
from sim.workload import Job

from ...formats.base import Paged
from ..account import Account, Tokens, ceiling_of
from ..fitting import Kept, Skipped
from ..observing.team import Team
from ..run import Run
from .use import DECODE, MIXED, PREFILL, FleetUse, LinkTotals, ReplicaUse


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
    use = _use_of(options, timed, choices, team, run.account, ceilings, digests)
    return replace(run, history=team.history(whole, ceilings), fleet=use)


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


def _use_of(
    options: FleetOptions,
    timed: FleetResult | None,
    choices: Mapping[int, int],
    team: Team,
    account: Account,
    ceilings: Tokens,
    digests: Sequence[str],
) -> FleetUse:
    """What each replica did. timed: None in hits mode."""
    rows = list(account.rows())
    chosen = [choices[row.request] for row in rows]
    replicas = []
    for place in range(options.members):
        routed = place < options.replicas
        own = [row for row, replica in zip(rows, chosen, strict=True) if replica == place]
        role = (PREFILL if options.decode else MIXED) if routed else DECODE
        replicas.append(
            ReplicaUse(
                role,
                len(own) if routed or timed is None else len(timed.members[place].requests),
                sum(row.input_tokens for row in own),
                sum(row.hit_tokens for row in own),
                _sampled(timed, place, role),
                _ttft(timed, place) if routed else NO_PAGES,
                team.evicted(place),
                team.watches[place].operations if team.watches else 0,
                digests[place],
            )
        )
    elsewhere = sum(row.ceiling - int(ceilings[row.request]) for row in rows)
    trips, link = None, None
    if options.decode and timed is not None:
        trips, link = timed.trips, LinkTotals(timed.link.bytes, timed.link.busy_ns)
    return FleetUse(options, tuple(replicas), choices, elsewhere, trips, link)


def _sampled(timed: FleetResult | None, place: int, role: str) -> int:
    """Tokens that a replica sampled. A prefill replica samples the first of each answer."""
    if timed is None:
        return 0
    first = 1 if role == DECODE else 0
    return sum(max(1, one.output_length) - first for one in timed.members[place].requests)


def _ttft(timed: FleetResult | None, place: int) -> Pages:
    if timed is None:
        return NO_PAGES
    requests = timed.members[place].requests
    times = [one.first_token_ns - one.arrival_ns for one in requests]
    return np.array(times, dtype=np.int64)
