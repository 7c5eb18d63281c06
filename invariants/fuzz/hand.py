"""The hand that plays a tape: a scheduler and executors in one, with nothing decided in advance.

Lives here: the state of a run (requests, replies under way, virtual time), taking replies, and what
faults do to them. Must not live here: what an operation is (ops), where entries come from
(generate), or any verdict: a check, the content or the core raises.

Replies become due at a time; the host learns of them when it polls, so anything may be issued
between a completion and its reply. Everything here is legal by the contract of the events, but for
what op "misuse" and fault "twice" do on purpose, which the core must refuse without a trace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from hicache.core.actions import Action, Backup, Load, Outcome, Prefill, Refused, Restarted
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    BackupDone,
    Event,
    LoadDone,
    PrefillDone,
    Reply,
    Retracted,
)
from hicache.core.types import Key, Tier
from hicache.runtime.driver import Driver
from invariants.watch import Watch

from .content import Content
from .probes import Probes
from .tape import Act

AUDIT_EVERY = 16
PLAIN = Act(1, 0)
LOST = 1 << 60


@dataclass(slots=True)
class Job:
    """One request as its engine knows it. stage: waiting, prefilling, idle or decoding."""

    id: int
    tokens: list[int]
    namespace: str
    prompt: int
    stage: str = "waiting"
    computed: int = 0
    committed: int = 0
    told: int = 0  # computed tokens that the core was told of
    flight: int = 0
    loads: tuple[int, ...] = ()
    ids: list[int] = field(default_factory=list)


class Pending(NamedTuple):
    """A reply under way."""

    due: int
    tie: int
    number: int
    action: Action
    fault: str


class Misuse(AssertionError):
    """The core took an event that its contract forbids, or changed something in refusing it."""


class Hand:
    """Plays on one core. counts: what was done and met."""

    def __init__(
        self, config: Config, order: str = "time", watch: Watch | None = None, remember: bool = True
    ) -> None:
        self.config = config
        self.core = Core(config)
        self.watch = watch if watch is not None else Watch("every")
        self._silent = Driver(self.core, self)
        self.content = Content(config) if remember else None
        self.probes = Probes(config)
        self.order = order
        self.now = 0
        self.jobs: dict[int, Job] = {}
        self.pending: list[Pending] = []
        self.past: list[tuple[list[int], str]] = []  # what ended lately, to begin prompts with
        self.used: set[int] = set()  # numbers of requests, for good
        self.landed: set[int] = set()
        self.never = LOST  # when a lost reply is due
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.acts: tuple[Act, ...] = ()
        self._turn = 0
        self._driver = Driver(self.core, self, (self.watch, self.probes))

    # -- the core

    def feed(self, event: Event) -> list[Outcome]:
        """One event, watched; its actions get what the present entry has for them."""
        self.events += 1
        outcomes = self._driver.feed(event)
        for item in outcomes:
            if isinstance(item, Prefill):
                self.submit(item)
            elif isinstance(item, Restarted):
                job = self.jobs[item.request]
                job.stage, job.computed, job.told, job.loads = "waiting", 0, 0, ()
            if self.content is not None:
                self.content.see(item)
        if self.content is not None and self.events % AUDIT_EVERY == 0:
            self.content.audit(self.core.view)
        return outcomes

    def submit(self, action: Action) -> None:
        """As the driver's executor: the action is under way."""
        act = self.acts[self._turn % len(self.acts)] if self.acts else PLAIN
        self._turn += 1
        due = LOST if act.fault == "lost" else self.now + act.delay
        self.pending.append(Pending(due, act.tie, action.flight, action, act.fault))
        if isinstance(action, Prefill):
            job = self.jobs[action.request]
            job.stage, job.flight, job.loads = "prefilling", action.flight, action.after

    def start(self) -> None:
        """As the driver's executor: everything has begun when it was submitted."""

    def poll(self) -> list[Reply]:
        """As the driver's executor: replies are fed one by one instead, see `take_due`."""
        return []

    def begin(self, gap: int, poll: bool, acts: tuple[Act, ...]) -> None:
        """A new entry: time passes, and the host may look for replies."""
        self.now += gap
        self.acts, self._turn = acts, 0
        if poll:
            self.take_due()

    def take_due(self) -> int:
        """Take every reply that is due, and those that become due by it. Returns how many."""
        taken = 0
        while True:
            ready = [one for one in self.pending if one.due <= self.now]
            if not ready:
                return taken
            self.take(min(ready, key=self._rank))
            taken += 1

    def _rank(self, one: Pending) -> tuple[int, int, int]:
        by_time = (one.due, one.tie, one.number)
        return by_time if self.order == "time" else (one.tie, one.due, one.number)

    def take(self, one: Pending) -> None:
        """The reply reaches the core, good or bad."""
        self.pending.remove(one)
        action, fine = one.action, one.fault not in ("fail", "torn")
        if one.fault not in ("", "lost"):
            self.counts[f"fault {one.fault} {type(action).__name__}"] += 1
        if isinstance(action, Prefill):
            reply: Reply = PrefillDone(action.flight, self._end_pass(action, fine))
        elif isinstance(action, Load):
            fine = fine or action.flight in self.landed  # a pass that read it is done already
            self._end_copy(action, Tier.DEVICE, fine, torn=one.fault == "torn")
            reply = LoadDone(action.flight, fine)
        else:
            self._end_copy(action, Tier.HOST, fine, torn=one.fault == "torn")
            reply = BackupDone(action.flight, fine)
        self.feed(reply)
        if one.fault == "twice":
            self.refused(reply)

    def _end_copy(self, action: Load | Backup, tier: Tier, fine: bool, torn: bool) -> None:
        if self.content is not None:
            self.content.end_copy(action.flight, tier, fine, torn)

    def _end_pass(self, action: Prefill, fine: bool) -> bool:
        job = self.jobs.get(action.request)
        lost = job is None or job.flight != action.flight or job.stage != "prefilling"
        if self.content is not None:
            for load in () if lost or not fine else action.after:
                self.content.end_copy(load, Tier.DEVICE, True)
            self.content.end_pass(action, None if job is None or lost or not fine else job.ids)
        if job is None or lost:
            return fine
        if fine:
            self.landed.update(action.after)
            job.computed = action.end
            job.stage = "decoding" if action.last else "idle"
            if action.last:
                job.committed = job.prompt
        return fine

    def refused(self, event: Event) -> None:
        """Feed an event that the contract forbids: a CallerError, and nothing else, must follow."""
        view = self.core.view
        before = _outline(self.core)
        try:
            self._silent.feed(event)
        except CallerError:
            self.counts["misuse refused"] += 1
            if _outline(self.core) != before:
                raise Misuse(f"{event} was refused, and left a trace") from None
            return
        raise Misuse(f"{event} was taken with {len(view.flights)} flights open")

    def settle(self) -> None:
        """Every reply under way is taken, the lost ones too, and those that this leads to."""
        while self.pending:
            self.now = max([self.now, *(one.due for one in self.pending if one.due < LOST)])
            if not self.take_due():
                self.take(min(self.pending, key=self._rank))

    # -- requests

    def remember(self, tokens: list[int], namespace: str) -> None:
        """Later prompts may begin like this one."""
        if tokens:
            self.past = [*self.past[-9:], (list(tokens), namespace)]

    def key(self, job: Job, tokens: int) -> Key:
        return Key.from_tokens(job.tokens[:tokens], self.config.page_size, job.namespace)

    def pick(self, *stages: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.stage in stages]

    def job(self, number: object, *stages: str) -> Job | None:
        """The request that an entry names, if it is in one of these stages."""
        job = self.jobs.get(number) if isinstance(number, int) else None
        return job if job is not None and job.stage in stages else None

    def give_way(self, outcomes: list[Outcome]) -> None:
        """A running request found no page: the one that the refusal names gives its own back."""
        refusal = next((item for item in outcomes if isinstance(item, Refused)), None)
        if refusal is None or refusal.reason != "no_pages":
            return
        victim = self.jobs.get(refusal.preempt)
        if victim is not None and victim.stage in ("decoding", "idle"):
            self.retract(victim)
        elif victim is not None:
            self.abort(victim)

    def retract(self, job: Job) -> None:
        size, page = len(job.tokens), self.config.page_size
        done = job.committed if job.stage == "decoding" else job.computed
        self.feed(Retracted(job.id, self.key(job, size), size, (size - 1) // page, done))
        job.stage, job.prompt, job.loads = "waiting", size, ()
        job.computed = job.told = 0

    def abort(self, job: Job) -> None:
        self.feed(Aborted(job.id))
        del self.jobs[job.id]


def _outline(core: Core) -> tuple[object, ...]:
    """What a refused event must not change."""
    view = core.view
    pools = [
        (tuple(view.pool(tier, at).counts), view.pool(tier, at).protected)
        for tier in (Tier.DEVICE, Tier.HOST)
        for at in range(len(view.components))
    ]
    nodes = sum(1 for _ in view.nodes())
    return (*pools, nodes, view.tick, tuple(view.flights), tuple(view.requests))
