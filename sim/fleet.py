"""A fleet: replicas behind a router on one simulated clock, or prefill and decode replicas.

    prefill computes the prompt and samples the first token; its pages stay
    -> the least loaded decode replica gets the request, which waits for pages there like any other
    -> it is admitted: what the decode replica has cached is not moved
    -> the rest waits for the link, and moves in one transfer, after the last layer was computed
    -> it decodes, and the prefill replica gives the pages of the prompt to its cache

A transfer takes the place of the forward pass that the decode core asks for: the core hears that
the pages are filled when the last byte has arrived. Not modelled: a transfer of single layers
while later ones are computed, a reservation of decode pages before the prefill, and KV of generated
tokens that moves back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from hicache.core.actions import Prefill
from hicache.core.config import Config
from hicache.core.errors import About, CallerError
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE
from hicache.runtime.driver import Observer

from .arrivals import Arrivals
from .clock import Clock, SharedClock, Timer, earliest
from .device.link import SECOND_NS
from .engine.forward import Accesses, PageUse, tags_of
from .engine.running import Relay
from .engine.sequence import RequestResult, TokenGaps
from .engine.sequence import Sequence as Served
from .errors import SimError, StuckError
from .hardware import HardwareProfile
from .options import EngineOptions, FleetOptions, KvLinkOptions, WorldOptions
from .replica import LinkUse, Replica, TimedResult, WorldStorage
from .routers import FrontEnd, Loads, Window, router_of
from .workload import Job, SenderOptions, Workload

_STREAM = "kv link"
_UNSET = -1


class _Queued(NamedTuple):
    ends: frozenset[tuple[str, int]]
    bytes: int
    began: Callable[[], None]
    done: Callable[[], None]


class KvLink:
    """The network between replicas: each sends one transfer at a time, and receives one.

    A transfer begins when its sender and its receiver are both free; of several that could, the one
    that was asked for first. It takes the latency, and its bytes at the link's rate.

    bytes, busy_ns: of finished transfers.
    """

    def __init__(self, clock: Timer, options: KvLinkOptions) -> None:
        self._clock = clock
        self._options = options
        self._queue: list[_Queued] = []
        self._busy: frozenset[tuple[str, int]] = frozenset()
        self.bytes = self.busy_ns = 0

    def send(
        self,
        sender: int,
        receiver: int,
        count: int,
        began: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        """Queues `count` bytes. began, done: called when they begin to move, and when all have
        arrived."""
        ends = frozenset((("out", sender), ("in", receiver)))
        self._queue.append(_Queued(ends, count, began, done))
        self._begin_free()

    def _begin_free(self) -> None:
        waiting: list[_Queued] = []
        for queued in self._queue:
            if queued.ends & self._busy:
                waiting.append(queued)
            else:
                self._busy |= queued.ends
                self._begin(queued)
        self._queue = waiting

    def _begin(self, queued: _Queued) -> None:
        queued.began()
        rate = self._options.bytes_per_s
        lasts_ns = self._options.latency_ns - -queued.bytes * SECOND_NS // rate
        self._clock.after(lasts_ns, lambda: self._end(queued, lasts_ns))

    def _end(self, queued: _Queued, lasted_ns: int) -> None:
        self._busy -= queued.ends
        self.bytes += queued.bytes
        self.busy_ns += lasted_ns
        queued.done()
        self._begin_free()


@dataclass(slots=True)
class Trip:
    """One request between two replicas. Times since the start of the run, -1 if it was not
    reached. left_ns: its first token was sampled. admitted_ns: it has pages on the decode replica.
    began_ns, arrived_ns: of its transfer. pages: that moved; cached: that were there already."""

    request: int
    prefill: int
    decode: int
    left_ns: int
    admitted_ns: int = _UNSET
    began_ns: int = _UNSET
    arrived_ns: int = _UNSET
    bytes: int = 0
    pages: int = 0
    cached: int = 0

    @property
    def why(self) -> str:
        return f"transfer of request {self.request} from replica {self.prefill} to {self.decode}"


class Member(Replica):
    """A replica, and its end of the KV link. served: called with the replica's number and each
    request that ended there.

    The accesses of a transfer are on a stream of their own, so that with checks on the hazard
    detector orders them against passes and copies, and the content of pages is compared.
    """

    def __init__(
        self, place: int, served: Callable[[int, Served], None], *args: Any, **rest: Any
    ) -> None:
        super().__init__(*args, **rest)
        self.place = place
        self._served = served
        self._accesses = Accesses(self.core.view.config, self.core.view.components)
        self._device = self._machine.device
        self._stream = self._device.stream(_STREAM)

    def _ended(self, sequence: Served) -> None:
        super()._ended(sequence)
        self._served(self.place, sequence)

    def order(self) -> None:
        """What is moved from now on comes after all passes that were launched. Call it at a step
        boundary."""
        device_event = self._device.record(self._device.stream(COMPUTE))
        self._device.wait(self._stream, device_event)

    def begin(self, sequence: Served, prefill: Prefill, mode: Literal["r", "w"], why: str) -> None:
        """The bytes of a prompt begin to leave ("r") or to arrive ("w")."""
        for use in self._moved(sequence, prefill, mode, why):
            self._device.access(self._stream, use.access((0, self._device.layers)))

    def end(
        self,
        sequence: Served,
        prefill: Prefill,
        mode: Literal["r", "w"],
        why: str,
        then: Callable[[], None],
    ) -> None:
        """The last byte has moved. then: called when the host has seen it; on the receiver, when
        the loads before the prompt have landed too."""
        sim, device, stream = self._machine.sim, self._device, self._stream
        for transfer in prefill.after if mode == "w" else ():
            for device_event in self.controller.load_events(transfer):
                device.wait(stream, device_event)
        for use in self._moved(sequence, prefill, mode, why):
            access = use.access((0, device.layers))
            tags = tags_of(sequence, use, self._accesses.page_size)
            (sim.verify if mode == "r" else sim.publish)(stream, access, tags)
        sim.compute(stream, 0)
        device_event = device.record(stream)

        def seen() -> None:
            assert device.query(device_event), "a synchronised mark is visible"
            then()

        sim.sync(device_event, seen)

    def _moved(
        self, sequence: Served, prefill: Prefill, mode: Literal["r", "w"], why: str
    ) -> list[PageUse]:
        if self._machine.memory is None:
            return []
        tokens = prefill.start_token, prefill.end_token
        return self._accesses.moved(sequence.tables, *tokens, why, mode)


class Handoff:
    """Requests on their way from a prefill replica to a decode replica. members: all replicas, the
    prefill replicas first. page_bytes: of a page, on all ranks together. left: called when a
    request leaves its prefill replica."""

    def __init__(
        self,
        clock: Timer,
        link: KvLink,
        fleet: FleetOptions,
        page_bytes: int,
        left: Callable[[int], None],
    ) -> None:
        self.trips: dict[int, Trip] = {}
        self.members: Sequence[Member] = ()
        self.loads = Loads(fleet.decode)
        self._clock = clock
        self._link = link
        self._prefills = fleet.replicas
        self._page_bytes = page_bytes
        self._left = left
        self._jobs: dict[int, Job] = {}  # on prefill replicas
        self._computed: dict[int, Served] = {}  # whose pages stay on a prefill replica

    def relay(self, place: int) -> Relay:
        """What a replica does with prompts of others."""
        prefills = place < self._prefills
        return Relay(
            lambda sequence: prefills and self._gives(place, sequence),
            lambda sequence, prefill: self._fetch(place, sequence, prefill),
        )

    def arrive(self, job: Job, place: int) -> None:
        """A request arrives at a prefill replica, which samples its first token only."""
        self._jobs[job.index] = job
        self.members[place].engine.arrive(replace(job, output_length=min(1, job.output_length)))

    def _gives(self, place: int, sequence: Served) -> bool:
        """Whether a request leaves its prefill replica, because it has more tokens to generate."""
        job = self._jobs.pop(sequence.job.index)
        if job.output_length <= 1:
            return False
        self._computed[job.index] = sequence
        self._clock.after(0, lambda: self._send(job, place))
        return True

    def _send(self, job: Job, place: int) -> None:
        chosen = self.loads.least()
        self.loads.send(job.index, chosen, job.input_length, 0)
        decode, now_ns = self._prefills + chosen, self._clock.now_ns
        self.trips[job.index] = Trip(job.index, place, decode, now_ns)
        self._left(job.index)
        self.members[decode].engine.take_over(job, now_ns)

    def _fetch(self, place: int, sequence: Served, prefill: Prefill) -> None:
        """A request has pages on its decode replica: moves what is not cached there."""
        trip = self.trips[sequence.job.index]
        size = self.members[place].core.view.config.page_size
        trip.admitted_ns = self._clock.now_ns
        trip.cached = prefill.start_token // size
        trip.pages = -(-prefill.end_token // size) - trip.cached
        trip.bytes = trip.pages * self._page_bytes
        self.members[place].order()

        begin = partial(self._begin, trip, sequence, prefill)
        end = partial(self._end, trip, sequence, prefill)
        if trip.pages:
            self._link.send(trip.prefill, trip.decode, trip.bytes, begin, end)
        else:
            begin()
            end()

    def _begin(self, trip: Trip, sequence: Served, prefill: Prefill) -> None:
        trip.began_ns = self._clock.now_ns
        self.members[trip.prefill].begin(self._computed[trip.request], prefill, "r", trip.why)
        self.members[trip.decode].begin(sequence, prefill, "w", trip.why)

    def _end(self, trip: Trip, sequence: Served, prefill: Prefill) -> None:
        trip.arrived_ns = self._clock.now_ns
        source, target = self.members[trip.prefill], self.members[trip.decode]
        computed = self._computed.pop(trip.request)
        source.end(computed, prefill, "r", trip.why, lambda: source.engine.release(computed))
        target.end(
            sequence, prefill, "w", trip.why, lambda: target.engine.delivered(sequence, prefill)
        )


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
                f"decode replicas: only full attention moves, found {', '.join(config.components)};"
                " give --replicas"
            )
        self._workload = workload
        self._progress = progress
        self._fleet = fleet
        self.clock = Clock()
        self._due = SharedClock(self.clock, "", lambda: -1)
        self._arrivals = Arrivals(workload, self._due, options, self._arrive, sender)
        self._front_end = FrontEnd(
            workload, fleet.replicas, fleet.router, lambda: self.clock.now_ns
        )
        self._moves = SharedClock(self.clock, "", lambda: -1)
        self.link = KvLink(self._moves, fleet.link)
        self.handoff = Handoff(self._moves, self.link, fleet, page_bytes, self._front_end.loads.end)
        reads = router_of(fleet.router.name).reads_events
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
                    observers=(*([Window(self._front_end, place)] if routed else ()), *seen),
                    relay=self.handoff.relay(place) if fleet.decode else None,
                )
            )
        self.handoff.members = self.members
        self._done: dict[int, None] = {}

    def _outside(self) -> int:
        """The next event of others that may concern a replica that decodes: an arrival, or the end
        of a prefill elsewhere or of a transfer. If ends let requests arrive, anything."""
        if self._arrivals.reacts:
            return self.clock.next_ns()
        times = [self._due.own_next_ns]
        if self._fleet.decode:
            prefills = self._clocks[: self._fleet.replicas]
            times += [self._moves.own_next_ns, *(prefill.own_next_ns for prefill in prefills)]
        return earliest(*times)

    def run(self) -> FleetResult:
        """Runs all requests. After an exception (also Ctrl-C), `result` returns the results so far.

        Raises StuckError when requests are left and nothing is scheduled.
        """
        self._arrivals.begin()
        self.clock.finish()
        for member in self.members:
            if member.engine.sequences:
                error = member.stuck()
                error.add_note(f"replica: {member.place}")
                raise error
        if len(self._done) < len(self._workload.jobs):
            raise StuckError(f"fleet: {len(self._done)} of {len(self._workload.jobs)} requests end")
        for member in self.members:
            member.close()
        return self.result()

    def result(self) -> FleetResult:
        """The results so far."""
        members = tuple(member.result() for member in self.members)
        requests = tuple(self._result_of(index) for index in sorted(self._done))
        return FleetResult(
            requests=requests,
            makespan_ns=max((request.finish_ns for request in requests), default=0),
            members=members,
            choices=self._front_end.choices,
            trips=self.handoff.trips,
            link=LinkUse(self.link.bytes, self.link.busy_ns),
            digest=digest_of([member.digest for member in members]),
            gaps=sum((member.gaps for member in members), ()),
        )

    def last(self) -> RequestResult:
        """The request that ended last."""
        return self._result_of(next(reversed(self._done)))

    def _result_of(self, index: int) -> RequestResult:
        """The record of a request that ended."""
        trip = self.handoff.trips.get(index)
        if trip is None:
            return self.members[self._front_end.choices[index]].results[index]
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
        place = self._front_end.choose(job)
        if self._fleet.decode:
            self.handoff.arrive(job, place)
        else:
            self.members[place].engine.arrive(job)

    def _ended(self, place: int, served: Served) -> None:
        index = served.job.index
        moved = index in self.handoff.trips
        if moved and place < self._fleet.replicas:
            return  # its prefill replica gave its pages back
        chosen = self.handoff.trips[index].decode if moved else self._front_end.choices[index]
        if place != chosen or index in self._done:
            text = f"request {index} (ends-once): sent to replica {chosen}, ended on {place}"
            raise SimError(text, "ends-once", About("request", index))
        if moved:
            self.handoff.loads.end(index)
        else:
            self._front_end.loads.end(index)
        self._done[index] = None
        for job in self._arrivals.after(served.job):
            self._arrivals.follow(job)
        self._progress(len(self._done), len(self._workload.jobs))


def digest_of(digests: Sequence[str]) -> str:
    """The digest of several replicas in order; of a single one, its own."""
    if len(digests) == 1:
        return digests[0]
    return blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()
