"""A seeded caller of one core: random requests, chunks, growth, aborts, retracts, evictions and
flushes, with replies that come late, in random order, and sometimes fail.

Everything it does is legal by the contract of the events, so whatever a check finds is the core's
(or the check's) fault. Draws come from one generator per rig; the tape of events is kept. With
`oracle`, every match is compared with brute force (`reference`) and every page that is read or
cached with what it would hold (`content`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hicache.core.actions import (
    Backup,
    Load,
    Outcome,
    Prefill,
    Refused,
    Seated,
)
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
from invariants.fuzz.content import Content
from invariants.watch import Level, Watch

from .score import Score

AUDIT_EVERY = 16


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
    told: int = 0  # computed tokens that the core was told of
    flight: int = 0
    loads: tuple[int, ...] = ()
    ids: list[int] = field(default_factory=list)


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
    oracle: bool = False
    reuse: int = 0  # percent of prompts that begin as an earlier one; evictions are as many more
    jobs: dict[int, Job] = field(default_factory=dict)
    flights: dict[int, Load | Backup | Prefill] = field(default_factory=dict)
    tape: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.core = Core(self.config)
        self.watch = Watch(self.level, f"rig seed {self.seed}")
        self.draw = np.random.default_rng(self.seed)
        self.next = 0
        self.past: list[tuple[list[int], str]] = []
        self.landed: set[int] = set()
        self.refused: dict[str, int] = {}
        self.score = Score(self.config.components, f"seed {self.seed}")
        self.content = Content(self.config) if self.oracle else None

    def feed(self, event: Event) -> list[Outcome]:
        self.tape.append(event)
        view = self.core.view
        wanted = self.score.before(event, view) if self.oracle else None
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
            self.score.after(item, wanted)
            if self.content is not None:
                self.content.see(item)
        if self.content is not None and len(self.tape) % AUDIT_EVERY == 0:
            self.content.audit(view)
        return outcomes

    def key(self, job: Job, tokens: int) -> Key:
        return Key.from_tokens(job.tokens[:tokens], self.config.page_size, job.namespace)

    def arrive(self) -> None:
        size = int(self.draw.integers(1, self.longest * self.config.page_size))
        if self.reuse:
            size = min(size, int(self.draw.integers(1, self.longest * self.config.page_size)))
        words = [int(self.draw.integers(self.words)) for _ in range(self.longest)]
        tokens = [words[at // self.config.page_size] for at in range(size)]
        space = self.namespaces[int(self.draw.integers(len(self.namespaces)))]
        if self.reuse and int(self.draw.integers(100)) < self.reuse and self.past:
            old, space = self.past[int(self.draw.integers(len(self.past)))]
            whole = int(self.draw.integers(2)) * len(old)
            kept = old[: whole or int(self.draw.integers(1, len(old) + 1))]
            size = max(1, min(size, self.longest * self.config.page_size - len(kept)))
            tokens = kept + tokens[:size]
            size = len(tokens)
        self.past = [*self.past[-9:], (tokens, space)]
        job = Job(self.next, tokens, space, size)
        if self.content is not None:
            self.content.extend(job.ids, space, tokens)
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
            elif self.reuse and isinstance(outcomes[-1], Refused):
                self.reply()
                self.finish()

    def proceed(self) -> None:
        job = self.pick("idle")
        if job is not None:
            self._give_way(self.feed(Continued(job.id, self.chunk())))

    def grow(self) -> None:
        job = self.pick("decoding")
        if job is None:
            return
        more = int(self.draw.integers(1, 2 * self.config.page_size + 2))
        behind = int(self.draw.integers(4)) * self.config.page_size
        computed = max(0, job.committed - behind) if behind < 3 * self.config.page_size else 0
        outcomes = self.feed(PagesWanted(job.id, len(job.tokens) + more, computed))
        job.told = max(job.told, computed)
        if isinstance(outcomes[-1], Refused):
            self._give_way(outcomes)
            return
        fresh = [int(self.draw.integers(self.words)) for _ in range(more)]
        job.tokens += fresh
        before, job.committed = job.committed, len(job.tokens) - 1
        if self.content is not None:
            self.content.extend(job.ids, job.namespace, job.tokens)
            self.content.decode(job.id, job.ids, before, job.committed)

    def _give_way(self, outcomes: list[Outcome]) -> None:
        """A running request found no page: the one that the refusal names gives its own back."""
        refusal = outcomes[-1]
        if not isinstance(refusal, Refused) or refusal.reason != "no_pages":
            return
        victim = self.jobs.get(refusal.preempt)
        if victim is not None and victim.state in ("decoding", "idle"):
            self.retract(victim)
        elif victim is not None:
            self.abort(victim)

    def finish(self) -> None:
        job = self.pick("decoding")
        if job is not None:
            if self.reuse and int(self.draw.integers(4)) == 0:
                self._reject(job)
            self.feed(Finished(job.id, self.key(job, job.committed), job.committed))
            self.past = [*self.past[-9:], (job.tokens[: job.committed], job.namespace)]
            del self.jobs[job.id]

    def _reject(self, job: Job) -> None:
        """The last step ran ahead: up to an interval of what it computed is not committed."""
        ahead = max(self.config.page_size, self.config.mamba_interval)
        least = max(job.prompt, job.told, job.committed - ahead)
        job.committed = int(self.draw.integers(least, job.committed + 1))

    def retract(self, job: Job | None = None) -> None:
        job = job or self.pick("decoding")
        if job is not None:
            size = len(job.tokens)
            done = job.committed if job.state == "decoding" else job.computed
            self.feed(
                Retracted(
                    job.id,
                    self.key(job, size),
                    size,
                    (size - 1) // self.config.page_size,
                    done,
                )
            )
            job.state, job.prompt, job.loads = "waiting", size, ()
            job.computed = job.told = 0

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
            if self.content is not None:
                self.content.end_copy(number, Tier.HOST, fine)
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
        if self.content is not None:
            self.content.end_copy(number, Tier.DEVICE, fine)
        self.feed(LoadDone(number, fine))

    def _prefill_done(self, action: Prefill, fine: bool) -> None:
        job = self.jobs.get(action.request)
        lost = job is None or job.flight != action.flight or job.state != "prefilling"
        if self.content is not None:
            for load in () if lost or not fine else action.after:
                self.content.end_copy(load, Tier.DEVICE, True)
            ids = None if job is None or lost or not fine else job.ids
            self.content.end_pass(action, ids)
        if job is None or lost:
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

    def evict(
        self, tier: Tier | None = None, pages: int | None = None, name: str | None = None
    ) -> None:
        names = self.config.components
        tier = Tier(int(self.draw.integers(2))) if tier is None else tier
        if name is None:
            name = names[int(self.draw.integers(len(names)))] if len(names) > 1 else names[0]
        most = 3 if self.reuse else 6
        large = 2 if tier == Tier.DEVICE else 12
        if self.reuse and int(self.draw.integers(large)) == 0:
            most = self.core.view.pool(tier, names.index(name)).capacity + 1
        count = int(self.draw.integers(most)) if pages is None else pages
        self.feed(EvictWanted(tier, name, count))

    def look(self) -> None:
        job = self.pick("waiting")
        if job is not None:
            self.feed(MatchWanted(job.id))

    def flush(self) -> None:
        self.feed(Flushed())

    def step(self) -> None:
        roll = int(self.draw.integers(100))
        if self.reuse and int(self.draw.integers(100)) < self.reuse // 8:
            self.evict(Tier.DEVICE if roll < 85 else Tier.HOST)
        elif roll < 12:
            if len(self.jobs) < (2 + self.seed % 4 if self.reuse else 12):
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
        elif roll < (91 if self.reuse else 93):
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
        if empty:
            self._evict_all(Tier.DEVICE)
            self._evict_all(Tier.HOST)
        if self.content is not None:
            self.content.audit(self.core.view)
        self.watch.finish(self.core.view)

    def _evict_all(self, tier: Tier) -> None:
        """Every pool of the tier is whole again, and nothing but copies on the other is left."""
        names = self.config.components
        pools = [self.core.view.pool(tier, index) for index in range(len(names))]
        for rounds in range(200):
            if not any(pool.evictable for pool in pools):
                break
            at = rounds % len(names)
            self.evict(tier, pools[at].capacity, names[at])
            self.settle()
        free = {pool.component: (pool.free, pool.capacity) for pool in pools}
        assert all(one == other for one, other in free.values()), f"{tier.name}: {free}"

    def settle(self) -> None:
        while self.flights:
            self.reply(next(iter(self.flights)), ok=True)


def seated(outcomes: list[Outcome]) -> bool:
    return any(isinstance(item, Seated) for item in outcomes)
