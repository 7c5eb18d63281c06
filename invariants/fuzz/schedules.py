"""Records of a run: a request as the engine knows it, a pending reply, and what every player has.
And schedules: the order in which the host takes due replies.

A sequence's order is "name" or "name:1:2:3": a schedule and its integer parameters, so the sequence
contains the whole schedule. One schedule serves one run.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hicache.core.errors import CallerError
from hicache.files import show

from .draws import Draws

DIGITS = 18
POLL = "poll"
ACTIONS = ("Load", "Backup", "Prefill", "Lookup", "Fetch", "Store", "Delete")
SOURCES = (*ACTIONS[:3], POLL)
PATIENCE = 3  # empty polls before the poll gets the lowest priority
LEAST_MADE_UP = 1 << 20  # request numbers from here on are made by faults


@dataclass(slots=True)
class Job:
    """One request as the engine knows it. stage: waiting, prefilling, idle (admitted, without
    a pass in flight) or decoding. transfers: of its passes in flight, in their order. begun: tokens
    up to where they go. more: tokens that a server is to generate for it."""

    id: int
    tokens: list[int]
    namespace: str
    prompt: int
    stage: str = "waiting"
    computed: int = 0
    committed: int = 0
    reported: int = 0  # computed tokens reported to the core
    transfers: list[int] = field(default_factory=list)
    begun: int = 0
    more: int = 0

    def may_go_on(self, passes: int) -> bool:
        """Whether its next chunk may begin, if so many of its passes may be in flight."""
        more = self.begun < self.prompt and len(self.transfers) < passes
        return self.stage == "idle" or (self.stage == "prefilling" and more)


class Pending(NamedTuple):
    """A pending reply. action: of our core, or a `Transfer`."""

    due: int
    tie: int
    number: int
    action: Any
    fault: str

    @property
    def kind(self) -> str:
        return str(getattr(self.action, "kind", type(self.action).__name__))


class Schedule:
    """Takes replies in the order of their due times; drawn ties order equal times. Subclasses
    override this. later: returns the delay of a reply for the `delay` of its act."""

    def __init__(self, *numbers: int) -> None:
        """numbers: those that it has no use for."""

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        """Returns the next reply to take, or None to leave the others for later."""
        return min(ready, key=by_time)

    def offers(self, now: int, pending: Sequence[Pending]) -> list[Pending]:
        """Returns the replies that `choose` may choose from."""
        return [item for item in pending if item.due <= now]

    def later(self, delay: int) -> int:
        return delay


def by_time(pending: Pending) -> tuple[int, int, int]:
    return (pending.due, pending.tie, pending.number)


class Heavy(Schedule):
    """Heavy-tailed delays: most replies are quick, a few take a thousand times as long."""

    def later(self, delay: int) -> int:
        return 1 << delay * 7 % 12


class Priority(Schedule):
    """Takes due replies in order of their drawn ties, and so in any order."""

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        return min(ready, key=lambda pending: (pending.tie, pending.due, pending.number))


class Starve(Schedule):
    """Delays the replies of one kind of action (0 loads, 1 backups, 2 passes, 3 lookups, 4 fetches,
    5 stores, 6 deletes) while others can be taken; with a second number n, also while fewer than n
    replies of this kind are pending."""

    def __init__(self, kind: int = 0, most: int = 4, *more: int) -> None:
        self.kind, self.most = ACTIONS[kind % len(ACTIONS)], most or 4

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        starved = [item for item in pending if item.kind == self.kind]
        others = [pending for pending in ready if pending.kind != self.kind]
        if others:
            return min(others, key=by_time)
        full = len(starved) >= self.most or len(starved) == len(pending)
        return min(ready, key=by_time) if full else None


class Pct(Schedule):
    """PCT: each source has a priority and the highest goes first. At d - 1 random steps, that
    source gets the lowest priority.

        pct:key:depth:steps

    Sources are the three kinds of actions and the host poll. If the poll goes first, replies are
    left for later. Only steps with a choice count (Burckhardt et al., "A Randomized Scheduler with
    Probabilistic Guarantees of Finding Bugs", ASPLOS 2010).
    """

    def __init__(self, key: int = 0, depth: int = 3, steps: int = 64, *more: int) -> None:
        draws, steps = Draws(key, "pct"), max(1, steps)
        left = list(SOURCES)
        self.order = [left.pop(draws.below(len(left))) for _ in SOURCES]
        self.changes = {draws.below(steps) for _ in range(depth - 1)}
        self.step = self.polls = 0

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        there = {pending.kind for pending in ready} | {POLL}
        first = next(name for name in self.order if name in there)
        if len(there) > 1:
            if self.step in self.changes:
                self._last(first)
                first = next(name for name in self.order if name in there)
            self.step += 1
        if first == POLL:
            self.polls += 1
            if self.polls % PATIENCE == 0:
                self._last(POLL)
            return None
        return min((item for item in ready if item.kind == first), key=by_time)

    def _last(self, name: str) -> None:
        self.order.remove(name)
        self.order.append(name)


KINDS: dict[str, type[Schedule]] = {
    "heavy": Heavy,
    "pct": Pct,
    "priority": Priority,
    "starve": Starve,
    "time": Schedule,
}


def schedule_of(order: str) -> Schedule:
    """Returns the schedule of a sequence's order. Raises CallerError."""
    name, *numbers = order.split(":")
    plain = all(item.isascii() and item.isdigit() and len(item) <= DIGITS for item in numbers)
    if name not in KINDS or not plain:
        digits = f"numbers of at most {DIGITS} digits behind colons"
        expected = f"one of {', '.join(KINDS)}, with {digits}"
        raise CallerError(f"order: expected {expected}, found {show(order)}")
    return KINDS[name](*map(int, numbers))


class Clients:
    """What every player has. past: recent prompts, which new ones may begin like. used: all request
    numbers ever used. counts: operations, faults and states reached."""

    def __init__(self, order: str) -> None:
        self.schedule: Schedule = schedule_of(order)
        self.now = self._turn = 0
        self.jobs: dict[int, Job] = {}
        self.used: set[int] = set()
        self.past: list[tuple[list[int], str]] = []
        self.pending: list[Pending] = []
        self.counts: Counter[str] = Counter()

    def pick(self, *stages: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.stage in stages]

    def job(self, request: int, *stages: str) -> Job | None:
        """The request of this number if it is in one of these stages."""
        job = self.jobs.get(request)
        return job if job is not None and job.stage in stages else None
