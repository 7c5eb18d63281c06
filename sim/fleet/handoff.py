"""Requests on their way from a prefill replica to a decode replica, with their KV.

    prefill computes the prompt and samples the first token; its pages stay
    -> the least loaded decode replica gets the request, which waits for pages there like any other
    -> it is admitted: what the decode replica has cached is not moved
    -> the rest waits for the link, and moves in one transfer, after the last layer was computed
    -> it decodes, and the prefill replica gives the pages of the prompt to its cache

A transfer takes the place of the forward pass that the decode core asks for: the core hears that
the pages are filled when the last byte has arrived. Does not model a transfer of single layers
while later ones are computed, a reservation of decode pages before the prefill, and KV of generated
tokens that moves back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hicache.core.actions import Prefill

from ..clock import Timer
from ..engine.sequence import Sequence as Served
from ..workload import Job
from .ledger import Ledger
from .member import Member
from .options import FleetOptions, KvLinkOptions
from .routers.base import Loads

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Wanted:
    ends: tuple[int, int]
    bytes: int
    began: Callable[[], None]
    done: Callable[[], None]


class KvLink:
    """The network between replicas: each sends one transfer at a time, and receives one.

    A transfer begins when its sender and its receiver are both free; of several that could, the one
    that was asked for first. It takes the latency, and its bytes at the link's rate.

    bytes, busy_ns: of finished transfers, by sender. transfers: how many finished.
    """

    def __init__(self, clock: Timer, options: KvLinkOptions) -> None:
        self._clock = clock
        self._options = options
        self._queue: list[_Wanted] = []
        self._busy: set[tuple[str, int]] = set()
        self.bytes: dict[int, int] = {}
        self.busy_ns: dict[int, int] = {}
        self.transfers = 0

    @property
    def idle(self) -> bool:
        return not self._queue and not self._busy

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
        self._queue.append(_Wanted((sender, receiver), count, began, done))
        self._begin_free()

    def lasts_ns(self, count: int) -> int:
        """Nanoseconds of a transfer, without its wait."""
        return self._options.latency_ns + -(-count * SECOND_NS // self._options.bytes_per_s)

    def _begin_free(self) -> None:
        waiting: list[_Wanted] = []
        for wanted in self._queue:
            ends = {("out", wanted.ends[0]), ("in", wanted.ends[1])}
            if ends & self._busy:
                waiting.append(wanted)
            else:
                self._busy |= ends
                self._begin(wanted)
        self._queue = waiting

    def _begin(self, wanted: _Wanted) -> None:
        wanted.began()
        self._clock.after(self.lasts_ns(wanted.bytes), lambda: self._end(wanted))

    def _end(self, wanted: _Wanted) -> None:
        sender, receiver = wanted.ends
        self._busy -= {("out", sender), ("in", receiver)}
        self.bytes[sender] = self.bytes.get(sender, 0) + wanted.bytes
        self.busy_ns[sender] = self.busy_ns.get(sender, 0) + self.lasts_ns(wanted.bytes)
        self.transfers += 1
        wanted.done()
        self._begin_free()


_UNSET = -1


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


class Handoff:
    """members: all replicas, the prefill replicas first. page_bytes: of a page, on all ranks
    together. left: called when a request leaves its prefill replica."""

    def __init__(
        self,
        clock: Timer,
        link: KvLink,
        ledger: Ledger,
        fleet: FleetOptions,
        page_bytes: int,
        left: Callable[[int], None],
    ) -> None:
        self.trips: dict[int, Trip] = {}
        self.members: Sequence[Member] = ()
        self._clock = clock
        self._link = link
        self._ledger = ledger
        self._prefills = fleet.replicas
        self._page_bytes = page_bytes
        self._left = left
        self._loads = Loads(fleet.decode)
        self._jobs: dict[int, Job] = {}  # on prefill replicas
        self._computed: dict[int, Served] = {}  # whose pages stay on a prefill replica

    def arrive(self, job: Job, place: int) -> None:
        """A request arrives at a prefill replica, which samples its first token only."""
        self._jobs[job.index] = job
        self.members[place].engine.arrive(replace(job, output_length=min(1, job.output_length)))

    def gives(self, place: int, sequence: Served) -> bool:
        """Whether a request leaves its prefill replica, because it has more tokens to generate."""
        job = self._jobs.pop(sequence.job.index)
        if job.output_length <= 1:
            return False
        self._computed[job.index] = sequence
        self._clock.after(0, lambda: self._send(job, place))
        return True

    def _send(self, job: Job, place: int) -> None:
        chosen = self._loads.least()
        self._loads.send(job.index, chosen, job.input_length, 0)
        decode = self._prefills + chosen
        now_ns = self._clock.now_ns
        self.trips[job.index] = Trip(job.index, place, decode, now_ns)
        self._ledger.sent(job.index, decode)
        self._left(job.index)
        self.members[decode].engine.take_over(job, now_ns)

    def fetch(self, place: int, sequence: Served, prefill: Prefill) -> None:
        """A request has pages on its decode replica: moves what is not cached there."""
        trip = self.trips[sequence.job.index]
        size = self.members[place].core.view.config.page_size
        trip.admitted_ns = self._clock.now_ns
        trip.cached = prefill.start_token // size
        trip.pages = -(-prefill.end_token // size) - trip.cached
        trip.bytes = trip.pages * self._page_bytes
        self.members[place].port.order()
        if trip.pages:
            self._link.send(
                trip.prefill,
                trip.decode,
                trip.bytes,
                lambda: self._begin(trip, sequence, prefill),
                lambda: self._end(trip, sequence, prefill),
            )
        else:
            self._begin(trip, sequence, prefill)
            self._end(trip, sequence, prefill)

    def ended(self, request: int) -> None:
        """A request has ended on its decode replica."""
        self._loads.end(request)

    def _begin(self, trip: Trip, sequence: Served, prefill: Prefill) -> None:
        trip.began_ns = self._clock.now_ns
        self._ledger.left(trip.request, trip.prefill, trip.decode, trip.bytes)
        tokens, why = _tokens(prefill), _why(trip)
        self.members[trip.prefill].port.begin(self._computed[trip.request], tokens, "r", why)
        self.members[trip.decode].port.begin(sequence, tokens, "w", why)

    def _end(self, trip: Trip, sequence: Served, prefill: Prefill) -> None:
        trip.arrived_ns = self._clock.now_ns
        source, target = self.members[trip.prefill], self.members[trip.decode]
        computed = self._computed.pop(trip.request)
        tokens, why = _tokens(prefill), _why(trip)

        def arrived() -> None:
            self._ledger.arrived(trip.request, trip.decode, trip.pages * self._page_bytes)
            target.engine.delivered(sequence, prefill)

        source.port.end(computed, tokens, "r", why, (), lambda: source.engine.release(computed))
        target.port.end(sequence, tokens, "w", why, prefill.after, arrived)


def _tokens(prefill: Prefill) -> tuple[int, int]:
    return prefill.start_token, prefill.end_token


def _why(trip: Trip) -> str:
    return f"transfer of request {trip.request} from replica {trip.prefill} to {trip.decode}"
