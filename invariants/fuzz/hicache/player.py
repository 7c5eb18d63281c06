"""The player that plays a sequence: it acts as the scheduler and the executors of a core. And
faults, how a reply goes wrong; a simulated storage; named states that sequences should reach.

Replies become due at a time, and the host sees them when it polls, so other events may come between
a completion and its reply. All events are legal by the contract, except those of the operation
"misuse": the core must refuse these and stay unchanged. Judges nothing: checks and the core
raise errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from hicache.core import actions, events
from hicache.core.actions import Action, Fetch, Load, Lookup, Outcome, Prefill, StorageAction
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import About, CallerError
from hicache.core.events import Event, Reply, StorageReply
from hicache.core.types import Key, Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Driver, Observer
from invariants.base import INVARIANT, Deviation
from invariants.checker import Checker
from invariants.fuzz.schedules import ACTIONS, Clients, Job, Pending, by_time
from invariants.fuzz.sequence import PLAIN, Act
from invariants.shadow.story import named_by

BEGIN = 1 << 41  # token before every prompt
LOST = 1 << 60  # when a lost reply is due


class Misuse(Deviation):
    """The core accepted a forbidden event, or changed its state when it refused one."""

    exit_code = INVARIANT


class Player(Clients):
    """Plays on one core. follows: by pass, the pass of its request that ends before it. plan: what
    is still to be drawn of a plan."""

    real_store: Any = None  # is played when nothing is in flight

    def __init__(
        self,
        config: Config,
        order: str = "time",
        checker: Checker | None = None,
        pairs: bool = False,
    ) -> None:
        super().__init__(order)
        self.config, self.pairs = config, pairs
        self.core = Core(config)
        self.checker = checker if checker is not None else Checker("every")
        self.simulated_store, self.probes = SimulatedStore(config), Probes()
        self.simulated_stores = [self.simulated_store]
        self.events = 0
        self.landed: set[int] = set()
        self.follows: dict[int, int] = {}
        self.last: Event | None = None
        self.acts: tuple[Act, ...] = ()
        self.plan: Iterator[tuple[str, dict[str, Any]]] = iter(())
        self._silent = Driver(self.core, self)
        self._driver = Driver(self.core, self, (self.checker, self.probes))

    # -- the core

    def observe(self, observer: Observer, first: bool = False) -> None:
        """Adds an observer of every event and outcome, behind all others or in front."""
        others = self._driver.observers
        self._driver.observers = (observer, *others) if first else (*others, observer)

    def feed(self, event: Event) -> list[Outcome]:
        """Feeds one event to the core under the checks; its actions get the acts of the current
        entry."""
        self.events += 1
        self.last = event
        outcomes = self._driver.feed(event)
        for item in outcomes:
            if isinstance(item, Prefill):
                self.submit(item)
            elif isinstance(item, actions.Restarted):
                job = self.jobs[item.request]
                job.stage, job.computed, job.reported, job.transfers = "waiting", 0, 0, []
        return outcomes

    def refused(self, event: Event) -> None:
        """Feeds a forbidden event. Raises Misuse unless the core raises CallerError and stays
        unchanged."""
        before = _outline(self.core)
        try:
            self._silent.feed(event)
        except CallerError:
            self.counts["misuse refused"] += 1
            if _outline(self.core) != before:
                text = f"{event} was refused, and left a trace"
                raise Misuse("MISUSE", text, *named_by(event)) from None
            return
        raise Misuse("MISUSE", f"{event} was taken", *named_by(event))

    # -- the executor of the driver

    def submit(self, action: Action) -> None:
        act = self.acts[self._turn % len(self.acts)] if self.acts else PLAIN
        site = type(action).__name__
        self._turn += 1
        kind = kind_of(act.fault, site)
        due = kind.due(self.now, self.now + self.schedule.later(act.delay))
        tie = -action.transfer if kind.turned else act.tie
        pending = Pending(due, tie, action.transfer, action, act.fault if kind is not NONE else "")
        self.pending.append(pending)
        if kind is not NONE:
            self.counts[f"fault {act.fault} {site}"] += 1
        if isinstance(action, Prefill):
            job = self.jobs[action.request]
            if job.transfers:
                self.follows[action.transfer] = job.transfers[-1]
            job.stage, job.begun = "prefilling", action.end_token
            job.transfers.append(action.transfer)
        self.carry_out(pending, act.tie)

    def carry_out(self, pending: Pending, tie: int) -> None:
        """Carries out an action. Does nothing here: its reply comes when it is due."""

    def abandon(self, transfer: int) -> None:
        """The action for storage is answered now, unless its reply is lost."""
        for at, pending in enumerate(self.pending):
            if pending.number == transfer and pending.due < LOST:
                self.pending[at] = pending._replace(due=min(pending.due, self.now))

    def start(self) -> None:
        """Does nothing: actions start when they are submitted."""

    def poll(self) -> list[Reply]:
        """Returns nothing: `take_due` feeds replies one by one."""
        return []

    # -- replies

    def begin(self, gap: int, poll: bool, acts: tuple[Act, ...]) -> None:
        """Begins an entry: advances time and may take replies."""
        self.now += gap
        self.acts, self._turn = acts, 0
        if poll:
            self.take_due()

    def finish(self) -> None:
        """Ends an operation: passes that follow another are answered, too early, and the core must
        refuse that."""
        for pending in self._next_pending():
            self.refused(events.PrefillDone(pending.number))

    def take_due(self) -> int:
        """Takes every reply that is due, and those that become due by it. Returns their number."""
        taken = 0
        while (ready := self.ready()) and (pending := self.schedule.choose(ready, self.pending)):
            self.take(pending)
            self.finish()
            taken += 1
        return taken

    def ready(self) -> list[Pending]:
        """The pending replies that may be taken now."""
        return self.schedule.offers(self.now, self.answerable())

    def answerable(self) -> list[Pending]:
        """The pending replies, without those of passes that end after one of these."""
        later = self._next_pending()
        return [pending for pending in self.pending if pending not in later]

    def _next_pending(self) -> list[Pending]:
        there = {pending.number for pending in self.pending} if self.follows else ()
        return [pending for pending in self.pending if self.follows.get(pending.number) in there]

    def take(self, pending: Pending) -> None:
        """Delivers a reply to the core."""
        self.pending.remove(pending)
        action = pending.action
        kind = kind_of(pending.fault, pending.kind)
        fine = self.went_well(pending, kind.fine)
        if isinstance(action, Prefill):
            reply: Reply = events.PrefillDone(action.transfer, self._end_pass(action, fine))
        elif isinstance(action, StorageAction):
            reply = self.answer(action, kind)
        else:
            done = events.LoadDone if isinstance(action, Load) else events.BackupDone
            reply = done(action.transfer, fine)
        self.feed(reply)

    def answer(self, action: StorageAction, kind: Fault) -> StorageReply:
        """The reply of the simulated storage."""
        return self.simulated_store.reply(action, kind)

    def went_well(self, pending: Pending, fine: bool) -> bool:
        """Whether the reply reports success. fine: whether the fault allows it."""
        # a load that a pass has read was successful
        return fine or (isinstance(pending.action, Load) and pending.number in self.landed)

    def _end_pass(self, action: Prefill, fine: bool) -> bool:
        job = self.jobs.get(action.request)
        if job is None or action.transfer not in job.transfers:
            return fine
        job.transfers.remove(action.transfer)
        if fine:
            self.landed.update(action.after)
            job.computed = action.end_token
            if not job.transfers:
                job.stage = "decoding" if action.completes_prompt else "idle"
            if action.completes_prompt:
                job.committed = job.prompt
        return fine

    def settle(self) -> None:
        """Takes all pending replies, including lost ones and those that follow."""
        while self.pending:
            due = (pending.due for pending in self.pending if pending.due < LOST)
            self.now = max([self.now, *due])
            if not self.take_due():
                self.take(min(self.answerable(), key=by_time))
                self.finish()

    def wait(self) -> bool:
        """Advances time to the next reply and takes it. Returns False if none is pending."""
        due = [pending.due for pending in self.answerable()]
        if due:
            self.now = max(self.now, min(due)) if min(due) < LOST else self.now
            self.take_due()
        return bool(due)

    def at_rest(self) -> None:
        """Checks what was carried out, when nothing is in flight."""
        if self.real_store is not None:
            self.real_store.play()

    # -- requests

    def arrive(self, job: Job, reusable: int, priority: int = 0) -> None:
        """A request arrives. reusable: how many tokens of its prompt need not be computed."""
        self.used.add(job.id)
        self.jobs[job.id] = job
        size, pages = len(job.tokens), reusable // self.config.page_size
        self.feed(events.Arrived(job.id, self.key(job, size), size, pages, priority))

    def decode(self, job: Job, start: int) -> None:
        """The tokens from here to the last but one were computed. Does nothing here."""

    def remember(self, tokens: list[int], namespace: str) -> None:
        """Keeps a prompt from which later prompts may start."""
        prompt = (list(tokens), namespace)
        if tokens:
            self.past = [*[pair for pair in self.past if pair != prompt][-39:], prompt]

    def key(self, job: Job, tokens: int) -> Key:
        return self.key_of(job.tokens[:tokens], job.namespace)

    def key_of(self, tokens: list[int], namespace: str = "") -> Key:
        """Returns the key of tokens; with `pairs`, the bigram key that draft models have."""
        tokens = [BEGIN, *tokens] if self.pairs else tokens
        return Key.from_tokens(tokens, self.config.page_size, namespace, bigram=self.pairs)

    def give_way(self, outcomes: list[Outcome]) -> None:
        """After a refusal for lack of pages, the request that it names is retracted or aborted."""
        for item in outcomes:
            if isinstance(item, actions.Refused) and item.reason == "no_pages":
                victim = self.jobs.get(item.retract)
                if victim is not None:
                    running = victim.stage in ("decoding", "idle")
                    (self.retract if running else self.abort)(victim)

    def retract(self, job: Job) -> None:
        size, page = len(job.tokens), self.config.page_size
        done = job.committed if job.stage == "decoding" else job.computed
        self.feed(events.Retracted(job.id, self.key(job, size), size, (size - 1) // page, done))
        job.stage, job.prompt, job.computed, job.reported = "waiting", size, 0, 0

    def abort(self, job: Job) -> None:
        self.feed(events.Aborted(job.id))
        del self.jobs[job.id]


def _outline(core: Core) -> tuple[object, ...]:
    """The state that a refused event must not change."""
    view = core.view
    both = (*view.pools(Tier.DEVICE), *view.pools(Tier.HOST))
    pools = [(*pool.counts, pool.protected) for pool in both]
    nodes = sum(1 for _ in view.nodes())
    stored = (view.attached, view.store_queue, view.distrusted)
    pins = tuple((pin.id, pin.held_pages) for pin in view.pins.values())
    return (*pools, nodes, view.tick, tuple(view.transfers), tuple(view.requests), *stored, pins)


# -- faults

Due = Callable[[int, int], int]


class Fault(NamedTuple):
    """How a reply goes wrong. It applies to one action of a sequence (`Act.fault`), and is
    recoverable: a miss is legal, but wrong bytes or a hang are not.

    sites: the actions that it applies to. fine: whether the reply reports success. due: from now
    and the time of the reply, its time with the fault. turned: of the replies due at once, that to
    the latest action is the first. says: what the reply of a storage says, in which so many pages
    of so many were found, have arrived or are stored. kept: of so many pages that a storage says to
    have stored, how many it has stored.
    """

    sites: tuple[str, ...] = ACTIONS
    fine: bool = True
    due: Due = lambda now, due: due
    turned: bool = False
    says: Callable[[int, int], int] = lambda pages, most: pages
    kept: Callable[[int], int] = lambda pages: pages


def _later(more: int) -> Due:
    return lambda now, due: due + more


def _together(now: int, due: int) -> int:
    return -(-due // 64) * 64


NONE = Fault()
TORN = Fault(("Load", "Backup"), fine=False)
# By what they need beside a core.
KINDS: dict[str, dict[str, Fault]] = {
    "": {
        "fail": Fault(fine=False),
        "submit error": Fault(fine=False, due=lambda now, due: now),
        "late error": Fault(fine=False, due=_later(200)),
        "pass error": Fault(("Prefill",), fine=False),
        "lost": Fault(due=lambda now, due: LOST),
        "late": Fault(due=_later(200)),
        "very late": Fault(due=_later(5000)),
        "burst": Fault(due=lambda now, due: now),
        "bunched": Fault(due=_together),
        "reordered": Fault(due=_together, turned=True),
        "engine stall": Fault(("Prefill",), due=_later(3000)),
        "overtaken load": Fault(("Load",), due=_later(400)),
        # stored sequences have all of these names
        **{f"torn{what}": TORN for what in ("", " suffix", " half", " last page", " whole")},
    },
    "storage": {
        "half of it": Fault(("Lookup", "Fetch", "Store"), says=lambda pages, most: pages // 2),
        "fetched in part": Fault(("Fetch",), says=lambda pages, most: pages // 2),
        "lookup lies": Fault(("Lookup",), says=lambda pages, most: most),
        "stored, then lost": Fault(("Store",), kept=lambda pages: 0),
        "stored, not acknowledged": Fault(
            ("Store",), says=lambda pages, most: 0, kept=lambda pages: LOST
        ),
    },
}
FAULTS = {name: kind for kinds in KINDS.values() for name, kind in kinds.items()}


def kind_of(name: str, site: str) -> Fault:
    """The kind of this name, or NONE where it is for another site."""
    kind = FAULTS[name] if name else NONE
    return kind if site in kind.sites else NONE


# -- a simulated storage


class WrongContent(Deviation):
    """What carries out the actions for a real storage answers or brings something else."""

    def __init__(self, text: str, *about: About) -> None:
        super().__init__("BYTES by content", text, *about)


class SimulatedStore:
    """values: what is stored, by component and digest."""

    def __init__(self, config: Config) -> None:
        self.names = config.components
        self.values: set[tuple[int, bytes]] = set()

    def reply(self, action: StorageAction, kind: Fault) -> StorageReply:
        """Carries out an action under a fault, and returns its reply."""
        if isinstance(action, actions.Delete):
            if kind.fine:
                self.values.clear()
            return events.DeleteDone(action.transfer, kind.fine)
        if isinstance(action, Lookup):
            pages = max(self.boundaries(action), default=0)
            answer = kind.says(pages, len(action.digests)) if kind.fine else 0
            return events.LookupDone(action.transfer, answer)
        pieces = list(self._pages(action))
        if isinstance(action, Fetch):
            missing = [piece[-1] for piece in pieces if piece[:2] not in self.values]
            arrived = min(missing, default=action.first_page + action.pages) - action.first_page
            answer = kind.says(arrived, action.pages) if kind.fine else 0
            return events.FetchDone(action.transfer, answer)
        answer = kind.says(len(pieces), len(pieces)) if kind.fine else 0
        self.values.update(piece[:2] for piece in pieces[: kind.kept(answer)])
        return events.StoreDone(action.transfer, answer)

    def _pages(self, action: Fetch | actions.Store) -> Iterator[tuple[int, bytes, int, int]]:
        """Component, digest, host page and depth of each page of an action."""
        for piece in action.pieces:
            index = self.names.index(piece.component)
            pages = zip(piece.digests, piece.pages.tolist(), strict=True)
            for depth, (digest, page) in enumerate(pages, piece.first_page):
                yield index, digest, page, depth

    def boundaries(self, action: Lookup) -> set[int]:
        """All boundaries for which everything is there."""
        ends = range(1, len(action.digests) + 1)
        return {end for end in ends if self._fits(action, action.digests[:end])}

    def _fits(self, action: Lookup, digests: Sequence[bytes]) -> bool:
        return all(
            (index, digest) in self.values
            for index, trailing in enumerate(action.trailing_pages)
            for digest in digests[-trailing if trailing else 0 if index else action.known_pages :]
        )


# -- named states that drawn sequences should reach

STATES = (
    *("failed PrefillDone", "failed LoadDone", "failed BackupDone"),
    *("restarted by PrefillDone", "restarted by LoadDone", "Admitted on what was fetched"),
    *(f"AdmitWanted refused: no_pages of {name}" for name in ("full", "swa", "mamba")),
    *(f"AdmitWanted refused: {why} of full" for why in ("writing_back", "arriving", "too_large")),
    *(f"{name} demoted from device by EvictWanted" for name in ("full", "swa", "mamba")),
    *("PagesWanted refused: no_pages of full", "full lost from host by EvictWanted"),
    *("Load of full by AdmitWanted", "aux-only load", "Backup of full by PrefillDone"),
    *("Admitted below the known prefix", "load without a request", "landed before its reply"),
    *("Flushed while a load is under way", "two requests wait for one prefetch"),
    *("FetchDone of part", "fetch after a flush", "reply after a flush", "pages are distrusted"),
)
_STATES = frozenset(STATES)


class Probes:
    """Observes one core and counts, in `seen`, the events that reach each state."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._before: list[tuple[str, bool]] = []  # what is reached if the event is taken
        self._fetched: set[int] = set()  # requests for which something was fetched

    def on_event(self, event: Event, view: CoreView) -> None:
        name, transfers = type(event).__name__, view.transfers
        self._before = [
            (f"{name} while a {item.kind} is under way", True) for item in transfers.values()
        ]
        transfer = transfers.get(getattr(event, "transfer", -1))
        if transfer is not None:
            pages = event.pages if isinstance(event, events.FetchDone) else -1
            self._before += [
                (f"failed {name}", getattr(event, "ok", True) is False),
                ("reply after a flush", any(segment.node is None for segment in transfer.segments)),
                ("fetch after a flush", pages >= 0 and transfer.receipt is None),
                ("FetchDone of part", 0 < pages < len(transfer.digests)),
            ]

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        rules = [*self._before, ("pages are distrusted", bool(view.distrusted))]
        for transfer in view.transfers.values():
            alone = transfer.kind == "load" and transfer.request == actions.NO_REQUEST
            name = "load without a request" if transfer.segments else "landed before its reply"
            rules.append((name, alone))
            rules.append(("two requests wait for one prefetch", len(transfer.waiters) > 1))
        for item in outcomes:
            rules += self._of(item, event)
        self.seen.update({name for name, met in rules if met} & _STATES)

    def _of(self, item: Outcome, event: Event) -> Iterator[tuple[str, bool]]:
        name = type(event).__name__
        if isinstance(item, actions.Refused):
            yield f"{name} refused: {item.reason} of {item.component}", True
        elif isinstance(item, actions.Evicted):
            how = "demoted" if item.demoted else "lost"
            yield f"{item.component} {how} from {Tier(item.tier).name.lower()} by {name}", True
        elif isinstance(item, actions.Load | actions.Backup):
            parts = {copy.component for copy in item.copies}
            yield f"{type(item).__name__} of {'+'.join(sorted(parts))} by {name}", True
        elif isinstance(item, actions.Admitted):
            known = item.device_pages + item.host_pages
            yield "Admitted below the known prefix", item.matched_pages > known
            yield "aux-only load", any(item.loaded_pages) and not item.loaded_pages[0]
            yield "Admitted on what was fetched", {item.request} <= self._fetched
        elif isinstance(item, actions.Restarted):
            yield f"restarted by {name}", True
        elif isinstance(item, actions.Prefetched) and item.fetched_pages:
            self._fetched.add(item.request)
