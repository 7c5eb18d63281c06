"""A seeded caller of one core: random requests, chunks, growth, aborts, retracts, evictions and
flushes, with replies that come late, in random order, and sometimes fail.

Everything it does is legal by the contract of the events, so whatever a check finds is the core's
(or the check's) fault. Draws come from one generator per rig; the tape of events is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hicache.core.actions import Backup, Load, Outcome, Prefill, Refused, Seated
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    Admitted,
    Arrived,
    BackupDone,
    Continued,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import Key, Tier
from invariants.watch import Level, Watch


@dataclass
class Job:
    """One request as its engine knows it."""

    id: int
    tokens: list[int]
    namespace: str
    prompt: int
    state: str = "waiting"  # waiting, prefilling, idle, decoding
    computed: int = 0
    committed: int = 0
    flight: int = 0
    loads: tuple[int, ...] = ()


@dataclass
class Rig:
    """Drives one core under a watch."""

    config: Config
    seed: int = 0
    level: Level = "every"
    fail_percent: int = 5
    words: int = 3
    longest: int = 40
    namespaces: tuple[str, ...] = ("", "lora")
    jobs: dict[int, Job] = field(default_factory=dict)
    flights: dict[int, Load | Backup | Prefill] = field(default_factory=dict)
    tape: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.core = Core(self.config)
        self.watch = Watch(self.level, f"rig seed {self.seed}")
        self.draw = np.random.default_rng(self.seed)
        self.next = 0
        self.landed: set[int] = set()
        self.refused: dict[str, int] = {}

    def feed(self, event: Event) -> list[Outcome]:
        self.tape.append(event)
        view = self.core.view
        self.watch.on_event(event, view)
        outcomes = self.core.handle(event)
        self.watch.on_outcomes(event, outcomes, view)
        for item in outcomes:
            if isinstance(item, Load | Backup | Prefill):
                self.flights[item.flight] = item
            if isinstance(item, Prefill):
                job = self.jobs[item.request]
                job.state, job.flight, job.loads = "prefilling", item.flight, item.after
            if isinstance(item, Refused):
                self.refused[item.reason] = self.refused.get(item.reason, 0) + 1
        return outcomes

    def key(self, job: Job, tokens: int) -> Key:
        return Key.from_tokens(job.tokens[:tokens], self.config.page_size, job.namespace)

    def arrive(self) -> None:
        size = int(self.draw.integers(1, self.longest * self.config.page_size))
        words = [int(self.draw.integers(self.words)) for _ in range(self.longest)]
        tokens = [words[at // self.config.page_size] for at in range(size)]
        space = self.namespaces[int(self.draw.integers(len(self.namespaces)))]
        job = Job(self.next, tokens, space, size)
        self.next += 1
        self.jobs[job.id] = job
        whole = (size - 1) // self.config.page_size
        self.feed(Arrived(job.id, self.key(job, size), size, whole))

    def pick(self, *states: str) -> Job | None:
        found = [job for job in self.jobs.values() if job.state in states]
        return found[int(self.draw.integers(len(found)))] if found else None

    def chunk(self) -> int:
        return int(self.draw.integers(1, self.longest * self.config.page_size))

    def admit(self) -> None:
        job = self.pick("waiting")
        if job is not None:
            outcomes = self.feed(Admitted(job.id, self.chunk()))
            if isinstance(outcomes[-1], Refused) and outcomes[-1].reason == "too_large":
                self.abort(job)

    def proceed(self) -> None:
        job = self.pick("idle")
        if job is not None:
            self.feed(Continued(job.id, self.chunk()))

    def grow(self) -> None:
        job = self.pick("decoding")
        if job is None:
            return
        more = int(self.draw.integers(1, 2 * self.config.page_size + 2))
        outcomes = self.feed(PagesWanted(job.id, len(job.tokens) + more))
        refusal = outcomes[-1]
        if isinstance(refusal, Refused):
            if refusal.reason == "no_pages":
                victim = self.jobs.get(refusal.preempt)
                if victim is not None and victim.state == "decoding":
                    self.retract(victim)
                elif victim is not None:
                    self.abort(victim)
            return
        fresh = [int(self.draw.integers(self.words)) for _ in range(more)]
        job.tokens += fresh
        job.committed = len(job.tokens) - 1

    def finish(self) -> None:
        job = self.pick("decoding")
        if job is not None:
            self.feed(Finished(job.id, self.key(job, job.committed), job.committed))
            del self.jobs[job.id]

    def retract(self, job: Job | None = None) -> None:
        job = job or self.pick("decoding")
        if job is not None:
            size = len(job.tokens)
            self.feed(
                Retracted(
                    job.id,
                    self.key(job, size),
                    size,
                    (size - 1) // self.config.page_size,
                    job.committed,
                )
            )
            job.state, job.prompt, job.computed = "waiting", size, 0

    def abort(self, job: Job | None = None) -> None:
        job = job or self.pick("waiting", "prefilling", "idle", "decoding")
        if job is not None:
            self.feed(Aborted(job.id))
            del self.jobs[job.id]

    def reply(self, number: int | None = None, ok: bool | None = None) -> None:
        if not self.flights:
            return
        if number is None:
            number = list(self.flights)[int(self.draw.integers(len(self.flights)))]
        action = self.flights.pop(number)
        fine = bool(self.draw.integers(100) >= self.fail_percent) if ok is None else ok
        if isinstance(action, Backup):
            self.feed(BackupDone(number, fine))
        elif isinstance(action, Load):
            self._load_done(number, fine)
        else:
            self._prefill_done(action, fine)

    def _load_done(self, number: int, fine: bool) -> None:
        job = next((one for one in self.jobs.values() if number in one.loads), None)
        fine = fine or number in self.landed  # a prefill that read it is done already
        if not fine and job is not None:
            job.state, job.computed, job.loads = "waiting", 0, ()
        self.feed(LoadDone(number, fine))

    def _prefill_done(self, action: Prefill, fine: bool) -> None:
        job = self.jobs.get(action.request)
        if job is None or job.flight != action.flight or job.state != "prefilling":
            self.feed(PrefillDone(action.flight, fine))
            return
        if fine:
            self.landed.update(action.after)
            job.computed = action.end
            job.state = "decoding" if action.last else "idle"
            if action.last:
                job.committed = job.prompt
        else:
            job.state, job.computed, job.loads = "waiting", 0, ()
        self.feed(PrefillDone(action.flight, fine))

    def evict(self, tier: Tier | None = None, pages: int | None = None) -> None:
        tier = Tier(int(self.draw.integers(2))) if tier is None else tier
        most = 6 if pages is None else pages
        count = int(self.draw.integers(most)) if pages is None else pages
        self.feed(EvictWanted(tier, "full", count))

    def look(self) -> None:
        job = self.pick("waiting")
        if job is not None:
            self.feed(MatchWanted(job.id))

    def flush(self) -> None:
        self.feed(Flushed())

    def step(self) -> None:
        roll = int(self.draw.integers(100))
        if roll < 12:
            if len(self.jobs) < 12:
                self.arrive()
        elif roll < 32:
            self.admit()
        elif roll < 58:
            self.reply()
        elif roll < 66:
            self.proceed()
        elif roll < 78:
            self.grow()
        elif roll < 87:
            self.finish()
        elif roll < 90:
            self.retract()
        elif roll < 93:
            self.abort()
        elif roll < 96:
            self.evict()
        elif roll < 99:
            self.look()
        elif not any(job.state != "waiting" for job in self.jobs.values()):
            self.flush()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def drain(self, empty: bool = False) -> None:
        """Answers everything, lets go of everything, and on request evicts everything."""
        for job in list(self.jobs.values()):
            self.abort(job)
        self.settle()
        rounds = 0
        while empty and self._cached(Tier.DEVICE):
            self.evict(Tier.DEVICE, self.config.device_pages[0])
            self.settle()
            rounds += 1
            assert rounds < 200, "evicting everything does not end"
        if empty:
            self.evict(Tier.HOST, self.config.host_pages[0])
            assert not self._cached(Tier.HOST), "host copies stay although nothing holds them"
        self.watch.finish(self.core.view)

    def _cached(self, tier: Tier) -> int:
        return self.core.view.pool(tier).evictable

    def settle(self) -> None:
        while self.flights:
            self.reply(next(iter(self.flights)), ok=True)


def seated(outcomes: list[Outcome]) -> bool:
    return any(isinstance(item, Seated) for item in outcomes)
