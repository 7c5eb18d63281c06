"""Routers, and the front end of the replicas: which replica gets a request when it arrives.

A router sees what one of a real deployment sees: the prompt, the replies that pass through it (so
it counts loads itself), and the KV events that the caches emit. It never sees a cache.
"""

from collections import deque
from collections.abc import Callable, Sequence

from hicache import registry
from hicache.core.actions import KvRemoved, KvStored, Outcome, Prefill
from hicache.core.events import Event, PrefillDone
from hicache.core.types import Tier
from hicache.core.view import CoreView

from .options import RouterOptions
from .workload import Job, Workload


class Loads:
    """What a router knows of the load of each replica: from what it sent there and what came back.

        waiting    prompt tokens to compute, of the requests whose first token has not come back
        kv_tokens  prompt tokens of the requests that have not ended
        sent       prompt tokens of all requests so far

    A router cannot know how long answers will be: generated tokens count nowhere.
    """

    def __init__(self, replicas: int) -> None:
        self.waiting = [0] * replicas
        self.kv_tokens = [0] * replicas
        self.sent = [0] * replicas
        self._open: dict[int, tuple[int, int, int]] = {}  # replica, tokens to compute, prompt

    def send(self, request: int, replica: int, prompt: int, compute: int) -> None:
        """A request goes to a replica. compute: prompt tokens that it is believed to compute."""
        self._open[request] = (replica, compute, prompt)
        self.waiting[replica] += compute
        self.kv_tokens[replica] += prompt
        self.sent[replica] += prompt

    def answer(self, request: int) -> None:
        """The first token of a request came back. Later answers change nothing."""
        if (result := self._open.get(request)) is not None:
            replica, compute, prompt = result
            self.waiting[replica] -= compute
            self._open[request] = (replica, 0, prompt)

    def end(self, request: int) -> None:
        """A request has ended, or left the replica."""
        replica, compute, prompt = self._open.pop(request)
        self.waiting[replica] -= compute
        self.kv_tokens[replica] -= prompt

    def least(self) -> int:
        """The replica with the fewest tokens held, then sent; then the first."""
        return min(
            range(len(self.kv_tokens)),
            key=lambda index: (self.kv_tokens[index], self.sent[index], index),
        )


class Router:
    """A subclass defines `pick`. One that reads KV events defines `stored` and `removed` too."""

    reads_events = False

    def __init__(self, replicas: int, page_size: int, options: RouterOptions) -> None:
        self.replicas = replicas
        self.loads = Loads(replicas)

    def choose(self, job: Job, digests: Callable[[], Sequence[bytes]]) -> int:
        """Sends a request to a replica, a number from 0. digests: those of the whole pages of its
        prompt, which cost a hash for each."""
        replica, compute = self.pick(job, digests)
        self.loads.send(job.index, replica, job.input_length, compute)
        return replica

    def pick(self, job: Job, digests: Callable[[], Sequence[bytes]]) -> tuple[int, int]:
        """The replica of a request, and the prompt tokens that it is believed to compute."""
        raise NotImplementedError

    def stored(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        """A KV event: these pages are on a tier of the replica."""

    def removed(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        """A KV event: these pages left a tier of the replica."""


class RoundRobin(Router):
    """The replica after the one before it, whatever their loads."""

    _next = -1

    def pick(self, job: Job, digests: Callable[[], Sequence[bytes]]) -> tuple[int, int]:
        self._next = (self._next + 1) % self.replicas
        return self._next, job.input_length


class LeastLoaded(Router):
    """The replica with the fewest prompt tokens of requests that have not ended, waiting and
    running; among equals the one that was sent the fewest tokens so far."""

    def pick(self, job: Job, digests: Callable[[], Sequence[bytes]]) -> tuple[int, int]:
        return self.loads.least(), job.input_length


class SessionSticky(Router):
    """The replica of the session's first request, which is the least loaded then."""

    def __init__(self, replicas: int, page_size: int, options: RouterOptions) -> None:
        super().__init__(replicas, page_size, options)
        self._places: dict[int, int] = {}

    def pick(self, job: Job, digests: Callable[[], Sequence[bytes]]) -> tuple[int, int]:
        chosen = self._places.get(job.session, -1)
        if chosen < 0:
            chosen = self.loads.least()
            if job.session >= 0:
                self._places[job.session] = chosen
        return chosen, job.input_length


_TIERS = (Tier.DEVICE, Tier.HOST)


class PrefixAware(Router):
    """The replica where a request costs least, in tokens:

        cost(replica) = overlap_weight x (waiting + prompt tokens not cached there) + held

    What is cached where is known from KV events alone; a page on host counts as much as one on
    device. This is the cost of NVIDIA Dynamo's KV router, overlap_score_weight x prefill_blocks +
    decode_blocks, with temperature 0 (docs.nvidia.com/dynamo, "Routing Concepts")."""

    reads_events = True

    def __init__(self, replicas: int, page_size: int, options: RouterOptions) -> None:
        super().__init__(replicas, page_size, options)
        self.places: dict[bytes, int] = {}  # of each page, a bit for each replica and tier
        self._page_size = page_size
        self._weight = options.overlap_weight

    def pick(self, job: Job, digests: Callable[[], Sequence[bytes]]) -> tuple[int, int]:
        size, loads, weight = self._page_size, self.loads, self._weight
        compute = [max(0, job.input_length - pages * size) for pages in self._leading(digests())]

        def cost(replica: int) -> tuple[int, int, int]:
            prefill = loads.waiting[replica] + compute[replica]
            total = weight.numerator * prefill + weight.denominator * loads.kv_tokens[replica]
            return total, loads.sent[replica], replica

        chosen = min(range(self.replicas), key=cost)
        return chosen, compute[chosen]

    def _leading(self, digests: Sequence[bytes]) -> list[int]:
        """How many of the leading pages each replica has."""
        numbers = [0] * self.replicas
        having = sum(1 << len(_TIERS) * replica for replica in range(self.replicas))
        for page, digest in enumerate(digests):
            bits = self.places.get(digest, 0)
            having &= bits | bits >> 1
            if not having:
                break
            for replica in range(self.replicas):
                if having >> len(_TIERS) * replica & 1:
                    numbers[replica] = page + 1
        return numbers

    def stored(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        if tier in _TIERS:
            bit = 1 << len(_TIERS) * replica + tier
            for digest in digests:
                self.places[digest] = self.places.get(digest, 0) | bit

    def removed(self, replica: int, tier: Tier, digests: Sequence[bytes]) -> None:
        if tier in _TIERS:
            bit = 1 << len(_TIERS) * replica + tier
            for digest in digests:
                if left := self.places.get(digest, 0) & ~bit:
                    self.places[digest] = left
                else:
                    self.places.pop(digest, None)


ROUTERS: dict[str, type[Router]] = {
    "least-loaded": LeastLoaded,
    "prefix-aware": PrefixAware,
    "round-robin": RoundRobin,
    "session-sticky": SessionSticky,
}


def router_of(name: str) -> type[Router]:
    """Raises CallerError for an unknown name."""
    spelled = name.replace("_", "-")
    if spelled not in ROUTERS:
        raise registry.unknown("router", name, list(ROUTERS))
    return ROUTERS[spelled]


class FrontEnd:
    """Asks the router, and tells it what comes back; KV events with a delay. now_ns: the time.
    choices: the replica of each request."""

    def __init__(
        self, workload: Workload, replicas: int, options: RouterOptions, now_ns: Callable[[], int]
    ) -> None:
        self.choices: dict[int, int] = {}
        self._workload = workload
        self._router = router_of(options.name)(replicas, workload.page_size, options)
        self.loads = self._router.loads
        self._delay_ns = options.delay_ns
        self._now_ns = now_ns
        self._late: deque[tuple[int, int, KvStored | KvRemoved]] = deque()

    def choose(self, job: Job) -> int:
        """Sends a request to a replica, and returns its number."""
        while self._late and self._late[0][0] <= self._now_ns():
            _, replica, message = self._late.popleft()
            self._tell(replica, message)
        key, length = self._workload.key, job.input_length
        chosen = self._router.choose(job, lambda: key(job, length).page_digests())
        self.choices[job.index] = chosen
        return chosen

    def heard(self, replica: int, message: KvStored | KvRemoved) -> None:
        """A core emitted a KV event."""
        if self._delay_ns:
            self._late.append((self._now_ns() + self._delay_ns, replica, message))
        else:
            self._tell(replica, message)

    def _tell(self, replica: int, message: KvStored | KvRemoved) -> None:
        if type(message) is KvStored:
            self._router.stored(replica, message.tier, message.digests)
        else:
            self._router.removed(replica, message.tier, message.digests)


class Window:
    """An observer of one core: passes on what the router may see of it."""

    def __init__(self, front_end: FrontEnd, replica: int) -> None:
        self._front_end = front_end
        self._replica = replica
        self._last: dict[int, int] = {}  # the request of each pass that completes a prompt

    def on_event(self, event: Event, view: CoreView) -> None:
        """An answer follows from the event and its outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if type(event) is PrefillDone:
            request = self._last.pop(event.transfer, None)
            if request is not None and event.ok:
                self._front_end.loads.answer(request)
        for outcome in outcomes:
            kind = type(outcome)
            if kind is Prefill:
                assert isinstance(outcome, Prefill)
                if outcome.completes_prompt:
                    self._last[outcome.transfer] = outcome.request
            elif kind is KvStored or kind is KvRemoved:
                assert isinstance(outcome, KvStored | KvRemoved)
                self._front_end.heard(self._replica, outcome)
