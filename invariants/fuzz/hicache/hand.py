"""The hand that plays a tape: it acts as the scheduler and the executors of a core.

Lives here: the state of a run (requests, pending replies, virtual time), taking replies, and the
effect of faults on them. Does not define operations (see ops), generate entries (see generate) or
judge the core: checks, contents and the core raise errors.

Replies become due at a time, and the host sees them when it polls, so other events may come between
a completion and its reply. All events are legal by the contract, except those of the operation
"misuse" and of faults like "repeated reply". The core must refuse these and stay unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hicache.core.actions import (
    Action,
    Backup,
    Load,
    Outcome,
    Prefill,
    Refused,
    Restarted,
    StorageAction,
)
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import About, CallerError
from hicache.core.events import (
    Aborted,
    BackupDone,
    Event,
    LoadDone,
    PrefillDone,
    Reply,
    Retracted,
    StorageReply,
)
from hicache.core.types import Key, Tier
from hicache.runtime.driver import Driver, Observer
from invariants.books.story import named_by
from invariants.fuzz.hicache.content import Content
from invariants.fuzz.hicache.faults.base import LOST, NONE, Fault, kind_of
from invariants.fuzz.hicache.probes import Probes
from invariants.fuzz.hicache.shelf import Shelf
from invariants.fuzz.records import Job, Pending
from invariants.fuzz.schedules import by_time, schedule_of
from invariants.fuzz.sequence import Act
from invariants.watch import Watch

__all__ = ["LOST", "Hand", "Job", "Misuse", "Pending"]

AUDIT_EVERY = 16
PLAIN = Act(1, 0)
BEGIN = 1 << 41  # token before every prompt


class Misuse(AssertionError):
    """The core accepted a forbidden event, or changed its state when it refused one."""

    def __init__(self, text: str, *about: About) -> None:
        super().__init__(text)
        self.about = about


class Hand:
    """Plays on one core. counts: numbers of operations, faults and states reached. can_store:
    whether a storage may be attached."""

    can_store = True

    def __init__(
        self,
        config: Config,
        order: str = "time",
        watch: Watch | None = None,
        remember: bool = True,
        pairs: bool = False,
    ) -> None:
        self.config = config
        self.pairs = pairs
        self.core = Core(config)
        self.watch = watch if watch is not None else Watch("every")
        self._silent = Driver(self.core, self)
        self.content: Content | None = Content(config, pairs) if remember else None
        self.shelf = Shelf(config)
        self.probes = Probes(config)
        self.schedule = schedule_of(order)
        self.now = self.blind = 0  # blind: polls that see nothing
        self.slow: dict[str, int] = {}  # by kind of action, no reply before this time
        self.jobs: dict[int, Job] = {}
        self.pending: list[Pending] = []
        self.past: list[tuple[list[int], str]] = []  # recent prompts, from which new ones may start
        self.used: set[int] = set()  # all request numbers ever used
        self.landed: set[int] = set()
        self.follows: dict[int, int] = {}  # by pass, the pass of its request that ends before it
        self.never = LOST  # due time of a lost reply
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.last: Event | None = None  # the event fed last
        self.acts: tuple[Act, ...] = ()
        self.entry = -1  # the current entry, or -1
        self._fresh: list[Pending] = []  # issued by the current operation
        self._turn, self._audit_at = 0, AUDIT_EVERY
        self._driver = Driver(self.core, self, (self.watch, self.probes))

    # -- the core

    def observe(self, observer: Observer) -> None:
        """Adds an observer of every event and outcome, in front of the checks."""
        self._driver.observers = (observer, *self._driver.observers)

    def observe_last(self, observer: Observer) -> None:
        """Adds an observer behind all others."""
        self._driver.observers = (*self._driver.observers, observer)

    @property
    def observers(self) -> Sequence[Observer]:
        return self._driver.observers

    def feed(self, event: Event) -> list[Outcome]:
        """Feeds one event to the core under the checks; its actions get the acts of the current
        entry.
        """
        self.events += 1
        self.last = event
        outcomes = self._driver.feed(event)
        for item in outcomes:
            if isinstance(item, Prefill):
                self.submit(item)
            elif isinstance(item, Restarted):
                job = self.jobs[item.request]
                job.stage, job.computed, job.told, job.loads = "waiting", 0, 0, ()
                job.flights = []
            self.see(item)
        if self.content is not None and self.events >= self._audit_at:
            self.content.audit(self.core.view)
            self._audit_at = self.events + max(AUDIT_EVERY, self.content.audited // 4)
        return outcomes

    def see(self, item: Outcome) -> None:
        """Handles an outcome of the core, after its action was submitted."""
        if self.content is not None:
            self.content.see(item)
        if isinstance(item, StorageAction):
            self.shelf.begin(item, self.content)

    def submit(self, action: Action) -> None:
        """Executor of the driver: starts an action."""
        act = self.acts[self._turn % len(self.acts)] if self.acts else PLAIN
        site = type(action).__name__
        self._turn += 1
        kind = kind_of(act.fault, site)
        due = kind.due(self, self.now + self.schedule.later(act.delay))
        due = max(due, self.slow.get(site, 0))
        tie = kind.tie(action.flight, act.tie)
        fault = act.fault if site in kind.sites else ""
        self.pending.append(Pending(due, tie, action.flight, action, fault))
        if act.fault and kind is not NONE:
            self.counts[f"fault {act.fault} {site}"] += 1
            self._fresh.append(self.pending[-1])
        if isinstance(action, Prefill):
            job = self.jobs[action.request]
            if job.flights:
                self.follows[action.flight] = job.flights[-1]
            job.stage, job.begun, job.loads = "prefilling", action.end_token, action.after
            job.flights.append(action.flight)
        self.carry_out(self.pending[-1], act.tie)

    def carry_out(self, one: Pending, tie: int) -> None:
        """Carries out an action. Does nothing here: its reply comes when it is due."""

    def abandon(self, flight: int) -> None:
        """Executor of the driver: the action for storage is answered now, unless its reply is
        lost."""
        for at, one in enumerate(self.pending):
            if one.number == flight and one.due < self.never:
                self.pending[at] = one._replace(due=min(one.due, self.now))

    def start(self) -> None:
        """Executor of the driver: does nothing, because actions start when they are submitted."""

    def poll(self) -> list[Reply]:
        """Executor of the driver: returns nothing, because `take_due` feeds replies one by one."""
        return []

    def begin(self, gap: int, poll: bool, acts: tuple[Act, ...]) -> None:
        """Begins an entry: advances time and may take replies."""
        self.now += gap
        self.acts, self._turn = acts, 0
        self.entry += 1
        if poll:
            self.take_due()

    def finish(self) -> None:
        """Ends an operation: passes that follow another are answered, too early, and the core must
        refuse that. Then runs the faults that act after its actions were issued."""
        acts, self.acts = self.acts, ()
        for one in self._following():
            self.refused(PrefillDone(one.number))
        while self._fresh:
            one = self._fresh.pop(0)
            if any(one.number == other.number for other in self.pending):
                kind_of(one.fault, type(one.action).__name__).issued(self, one)
        self.acts = acts

    def take_due(self) -> int:
        """Takes every reply that is due, and those that become due by it. Returns their number."""
        taken = 0
        if self.blind:
            self.blind -= 1
            return 0
        while True:
            ready = self.schedule.offers(self.now, self.answerable())
            one = self.schedule.choose(ready, self.pending) if ready else None
            if one is None:
                return taken
            self.take(one)
            self.finish()
            taken += 1

    def answerable(self) -> list[Pending]:
        """The pending replies, without those of passes that end after one of these."""
        later = self._following()
        return [one for one in self.pending if one not in later] if later else self.pending

    def _following(self) -> list[Pending]:
        there = {one.number for one in self.pending} if self.follows else ()
        return [one for one in self.pending if self.follows.get(one.number) in there]

    def take(self, one: Pending) -> None:
        """Delivers a reply to the core."""
        self.pending.remove(one)
        action = one.action
        kind = kind_of(one.fault, type(action).__name__)
        kind.before(self, one)
        fine = self.went_well(one, kind.fine)
        if isinstance(action, Prefill):
            reply: Reply = PrefillDone(action.flight, self._end_pass(action, fine))
        elif isinstance(action, Load):
            self._end_copy(action, Tier.DEVICE, fine, kind.arrives)
            reply = LoadDone(action.flight, fine)
        elif isinstance(action, StorageAction):
            reply = self.answer(action, kind)
        else:
            self._end_copy(action, Tier.HOST, fine, kind.arrives)
            reply = BackupDone(action.flight, fine)
        self.feed(reply)
        kind.after(self, one, reply)

    def answer(self, action: StorageAction, kind: Fault) -> StorageReply:
        """The reply of the simulated storage."""
        return self.shelf.reply(action, kind, self.now, self.content)

    def went_well(self, one: Pending, fine: bool) -> bool:
        """Whether the reply reports success. fine: whether the fault allows it."""
        # a load that a pass has read was successful
        return fine or (isinstance(one.action, Load) and one.number in self.landed)

    def _end_copy(
        self, action: Load | Backup, tier: Tier, fine: bool, arrives: Callable[[int, int], bool]
    ) -> None:
        if self.content is not None:
            self.content.end_copy(action.flight, tier, fine, arrives)

    def _end_pass(self, action: Prefill, fine: bool) -> bool:
        job = self.jobs.get(action.request)
        lost = job is None or action.flight not in job.flights
        if self.content is not None:
            for load in () if lost or not fine else action.after:
                self.content.end_copy(load, Tier.DEVICE, True)
            self.content.end_pass(action, None if job is None or lost or not fine else job.ids)
        if job is None or lost:
            return fine
        job.flights.remove(action.flight)
        if fine:
            self.landed.update(action.after)
            job.computed = action.end_token
            if not job.flights:
                job.stage = "decoding" if action.completes_prompt else "idle"
            if action.completes_prompt:
                job.committed = job.prompt
        return fine

    def refused(self, event: Event) -> None:
        """Feeds a forbidden event. Raises Misuse unless the core raises CallerError and stays
        unchanged.
        """
        view = self.core.view
        before = _outline(self.core)
        try:
            self._silent.feed(event)
        except CallerError:
            self.counts["misuse refused"] += 1
            if _outline(self.core) != before:
                raise Misuse(f"{event} was refused, and left a trace", *named_by(event)) from None
            return
        raise Misuse(f"{event} was taken with {len(view.flights)} flights open", *named_by(event))

    def settle(self) -> None:
        """Takes all pending replies, including lost ones and those that follow."""
        self.blind = 0
        while self.pending:
            self.now = max([self.now, *(one.due for one in self.pending if one.due < LOST)])
            if not self.take_due():
                self.take(min(self.answerable(), key=by_time))
                self.finish()

    def wait(self) -> bool:
        """Advances time to the next reply and takes it. Returns False if none is pending."""
        due = [one.due for one in self.answerable()]
        if due:
            self.now = max(self.now, min(due)) if min(due) < self.never else self.now
            self.take_due()
        return bool(due)

    def at_rest(self) -> None:
        """Checks the content of all cached pages, when nothing is in flight."""
        if self.content is not None:
            self.content.audit(self.core.view)

    def close(self) -> None:
        """Ends what the hand started. Does nothing here: there is no device."""

    # -- requests

    def decode(self, job: Job, ids: list[int], tokens: list[int], span: tuple[int, int]) -> None:
        """Generates the tokens of the span; `tokens` and `ids` include them."""
        if self.content is not None:
            self.content.extend(ids, job.namespace, tokens)
            self.content.decode(job.id, ids, *span)

    def remember(self, tokens: list[int], namespace: str) -> None:
        """Keeps a prompt from which later prompts may start."""
        if tokens:
            self.past = [*self.past[-9:], (list(tokens), namespace)]
        if tokens and self.config.storage:
            self.shelf.remember(list(tokens), namespace)

    def key(self, job: Job, tokens: int) -> Key:
        return self.key_of(job.tokens[:tokens], job.namespace)

    def key_of(self, tokens: list[int], namespace: str = "") -> Key:
        """Returns the key of tokens. With `pairs` each position holds a token and its predecessor,
        as bigram keys of draft models do.
        """
        size = self.config.page_size
        if self.pairs:
            return Key.from_tokens([BEGIN, *tokens], size, namespace, bigram=True)
        return Key.from_tokens(tokens, size, namespace)

    def pick(self, *stages: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.stage in stages]

    def job(self, number: object, *stages: str) -> Job | None:
        """Returns the request of this number if it is in one of these stages, else None."""
        job = self.jobs.get(number) if isinstance(number, int) else None
        return job if job is not None and job.stage in stages else None

    def give_way(self, outcomes: list[Outcome]) -> None:
        """After a refusal for lack of pages, retracts or aborts the request that the refusal
        names.
        """
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
    """The state that a refused event must not change."""
    view = core.view
    pools = [
        (tuple(view.pool(tier, at).counts), view.pool(tier, at).protected)
        for tier in (Tier.DEVICE, Tier.HOST)
        for at in range(len(view.components))
    ]
    nodes = sum(1 for _ in view.nodes())
    stored = (view.attached, view.store_queue, view.distrusted)
    pins = tuple((one.id, one.held_pages) for one in view.pins.values())
    return (*pools, nodes, view.tick, tuple(view.flights), tuple(view.requests), *stored, pins)
