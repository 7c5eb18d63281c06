"""A fleet: replicas behind a router on one simulated clock, or prefill and decode replicas.

Lives here: construction, the way of a request through the fleet, and the results. Does not choose a
replica (see routers), move KV (see handoff) or serve a request (see sim/engine).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from hicache.runtime.driver import Observer

from ..arrivals import Arrivals
from ..clock import Clock, SharedClock, earliest
from ..engine.sequence import RequestResult
from ..engine.sequence import Sequence as Served
from ..engine.token_gaps import TokenGaps
from ..errors import StuckError
from ..hardware.profile import HardwareProfile
from ..options import EngineOptions, WorldOptions
from ..replica import LinkUse, TimedResult, WorldStorage
from ..sender import Sender
from ..sending import SenderOptions
from ..workload import Job, Workload
from .desk import Desk, Window
from .handoff import Handoff, KvLink, Trip
from .ledger import Ledger
from .member import Ends, Member
from .options import FleetOptions
from .routers.base import reads_events


@dataclass(frozen=True, slots=True)
class FleetResult:
    """requests: those that ended, by index; with decode replicas, each in one record of both. The
    figures of reuse and time until the first token are then those of the prefill replica.

    members: of each replica; prefill replicas first. choices: the replica that the router chose for
    each request. trips: with decode replicas, how each request got there. link: of all prefill
    replicas. digest: of all replicas in order; of a single one, its own. gaps: the times between
    tokens, of each engine.
    """

    requests: tuple[RequestResult, ...]
    makespan_ns: int
    members: tuple[TimedResult, ...]
    choices: dict[int, int]
    trips: dict[int, Trip]
    link: LinkUse
    digest: str
    gaps: tuple[TokenGaps, ...] = ()


class Fleet:
    """See the module. observers: of each replica's core. page_bytes: of one page, of all ranks
    together. sender: how requests are sent, if not when they arrive. progress: called with (ended,
    all) when a request ends."""

    def __init__(
        self,
        workload: Workload,
        config: Config,
        model: ModelDescription,
        profile: HardwareProfile,
        fleet: FleetOptions,
        *,
        page_bytes: int = 0,
        engine: EngineOptions | None = None,
        options: WorldOptions | None = None,
        storage: WorldStorage | None = None,
        sender: SenderOptions | None = None,
        observers: Sequence[Sequence[Observer]] = (),
        progress: Callable[[int, int], None] = lambda ended, jobs: None,
    ) -> None:
        options = options or WorldOptions()
        if fleet.decode and len(config.components) > 1:
            raise CallerError(
                "decode replicas: expected full attention alone, whose pages can move, found "
                f"{', '.join(config.components)}; give --replicas"
            )
        self._workload = workload
        self._progress = progress
        self._fleet = fleet
        self.clock = Clock()
        self._due = SharedClock(self.clock, "", lambda: -1)
        self._sender: Sender | None = None
        if sender is not None:
            self._sender = Sender(sender, workload.jobs, self._due, options.speed, self._arrive)
        arrive = self._sender.ready if self._sender is not None else self._arrive
        self._arrivals = Arrivals(workload, self._due, options.speed, arrive, options.concurrency)
        self._desk = Desk(workload, fleet.replicas, fleet.router, lambda: self.clock.now_ns)
        self._ledger = Ledger()
        self._moves = SharedClock(self.clock, "", lambda: -1)
        self.link = KvLink(self._moves, fleet.link)
        self.handoff = Handoff(
            self._moves, self.link, self._ledger, fleet, page_bytes, self._desk.ended
        )
        reads = reads_events(fleet.router.name)
        self._clocks = [
            SharedClock(self.clock, str(place), self._outside) for place in range(fleet.members)
        ]
        self.members: list[Member] = []
        for place in range(fleet.members):
            routed = place < fleet.replicas
            seen = observers[place] if observers else ()
            self.members.append(
                Member(
                    place,
                    self._ended,
                    workload,
                    replace(config, kv_events=config.kv_events or (reads and routed)),
                    model,
                    profile,
                    clock=self._clocks[place],
                    engine=engine,
                    options=options,
                    storage=storage,
                    observers=(*([Window(self._desk, place)] if routed else ()), *seen),
                    relay=self._relay(place),
                )
            )
        self.handoff.members = self.members
        self._done: dict[int, None] = {}

    def _relay(self, place: int) -> Ends | None:
        if not self._fleet.decode:
            return None
        prefills = place < self._fleet.replicas
        gives = self.handoff.gives if prefills else (lambda place, sequence: False)
        return Ends(place, gives, self.handoff.fetch)

    def _outside(self) -> int:
        """The next event of others that may concern a replica that decodes: an arrival, or the end
        of a prefill elsewhere or of a transfer. If ends let requests arrive, anything."""
        if self._arrivals.reacts or self._sender is not None:
            return self.clock.next_ns()
        times = [self._due.own_next_ns]
        if self._fleet.decode:
            prefills = self._clocks[: self._fleet.replicas]
            times += [self._moves.own_next_ns, *(one.own_next_ns for one in prefills)]
        return earliest(*times)

    def run(self) -> FleetResult:
        """Runs all requests. After an exception (also Ctrl-C), `result` returns the results so far.

        Raises StuckError when requests are left and nothing is scheduled.
        """
        collecting = gc.isenabled()
        gc.disable()  # reference counting is enough; a collection would scan all trees
        try:
            self._arrivals.begin()
            while self.clock.next_ns() >= 0:
                self.clock.step()
        finally:
            if collecting:
                gc.enable()
        jobs = len(self._workload.jobs)
        for member in self.members:
            if member.engine.sequences:
                error = member.stuck()
                error.add_note(f"replica: {member.place}")
                raise error
        if not self.link.idle:
            raise StuckError("transfers are left on the KV link, and nothing is scheduled")
        self._ledger.close(jobs, sum(self.link.bytes.values()))
        for member in self.members:
            member.close()
        return self.result()

    def result(self) -> FleetResult:
        """The results so far."""
        members = tuple(member.result() for member in self.members)
        requests = tuple(self._one(index) for index in sorted(self._done))
        return FleetResult(
            requests=requests,
            makespan_ns=max((request.finish_ns for request in requests), default=0),
            members=members,
            choices=self._desk.choices,
            trips=self.handoff.trips,
            link=LinkUse(sum(self.link.bytes.values()), sum(self.link.busy_ns.values())),
            digest=digest_of([one.digest for one in members]),
            gaps=sum((one.gaps for one in members), ()),
        )

    def last(self) -> RequestResult:
        """The request that ended last."""
        return self._one(next(reversed(self._done)))

    def _one(self, index: int) -> RequestResult:
        """The record of a request that ended."""
        trip = self.handoff.trips.get(index)
        if trip is None:
            return self.members[self._desk.choices[index]].results[index]
        first = self.members[trip.prefill].results.get(index)
        second = self.members[trip.decode].results[index]
        if first is None:  # its pages are still being freed
            first = self.members[trip.prefill].engine.sequences[index].result
        return first._replace(
            output_length=second.output_length,
            finish_ns=second.finish_ns,
            retractions=first.retractions + second.retractions,
            refusals=first.refusals + second.refusals,
        )

    def _arrive(self, job: Job) -> None:
        place = self._desk.choose(job)
        self._ledger.sent(job.index, place)
        if self._fleet.decode:
            self.handoff.arrive(job, place)
        else:
            self.members[place].engine.arrive(job)

    def _ended(self, place: int, served: Served) -> None:
        index = served.job.index
        moved = index in self.handoff.trips
        if moved and place < self._fleet.replicas:
            return  # its prefill replica gave its pages back
        self._ledger.ended(index, place)
        if moved:
            self.handoff.ended(index)
        else:
            self._desk.ended(index)
        self._done[index] = None
        if self._sender is not None:
            self._sender.ended(served.job)
        for job in self._arrivals.after(served.job):
            self._arrivals.follow(job)
        self._progress(len(self._done), len(self._workload.jobs))


def digest_of(digests: Sequence[str]) -> str:
    """The digest of several replicas in order; of a single one, its own."""
    if len(digests) == 1:
        return digests[0]
    return blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()
