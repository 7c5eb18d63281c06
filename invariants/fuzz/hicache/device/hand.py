"""A hand with a device: the real controller and a simulated device carry out copies and passes.

Lives here: how an act of a tape becomes work on the device's streams, when the host asks for its
end, and the content of all pages at rest. Does not define operations and faults, which are the same
as on the plain hand, or the device (see rig).

The delay of an act is used by its tie. Tie 0: a stall before the work. Tie 2: pauses between the
parts of a copy, or a stall of a pass. Odd tie: the time until the host sees the end. A copy has 1 +
tie parts. An act with a failure makes one copy of its batch fail, and so the batch. Submitted work
starts at the host's next poll, with transfers merged into batches.
"""

from __future__ import annotations

from collections import Counter, abc, deque
from collections.abc import Callable

from hicache.core.actions import Backup, Cached, Granted, Load, Outcome, Prefill, Released
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import BackupDone, Event, Finished, LoadDone, Retracted
from hicache.core.types import Key, Tier
from hicache.core.view import CoreView
from hicache.runtime.controller import COMPUTE, LOAD, WRITE, TransferController
from hicache.runtime.driver import Driver
from invariants.fuzz.hicache.device.planned import Plan, PlannedDevice
from invariants.fuzz.hicache.device.rig import Rig
from invariants.fuzz.hicache.executors import DeviceSettings
from invariants.fuzz.hicache.faults.base import kind_of
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.records import Job, Pending
from invariants.fuzz.schedules import by_time
from invariants.watch import Watch
from sim.content import prefix_tags
from sim.device.memory import audit
from sim.engine.sequence import Sequence
from sim.errors import StuckError
from sim.workload import Job as Request

_COPIES = {Tier.DEVICE: "load", Tier.HOST: "backup"}


class DeviceStates:
    """Observes one core and counts into `seen`. done: returns whether the host has seen an end that
    was not reported to the core yet.
    """

    def __init__(self, seen: Counter[str], device: PlannedDevice, done: Callable[[], bool]) -> None:
        self.seen = seen
        self._device = device
        self._done = done
        self._late = 0

    def on_event(self, event: Event, view: CoreView) -> None:
        name = type(event).__name__
        moving = self._device.moving
        for tier in moving:
            self.seen[f"{name} while a {_COPIES[tier]} is in chunks on the device"] += 1
        self.seen["copies both ways at once on the device"] += len(moving) > 1
        self.seen[f"{name} between an end on the device and its reply"] += self._done()

    def on_outcomes(self, event: Event, outcomes: abc.Sequence[Outcome], view: CoreView) -> None:
        """Does nothing: states are counted at the event."""

    def looked(self, ended: abc.Sequence[Pending]) -> None:
        """Called after a poll with the replies that the host may take."""
        late, self._late = self._late, self._device.late
        held_back = self._late > late and not ended
        self.seen["a poll saw nothing though something was done"] += held_back
        self.seen["a poll saw ends of two streams"] += len(ended) > 1

    def batch(self, lane: str, actions: int) -> None:
        kind = "several" if actions > 1 else "one"
        self.seen[f"a batch of {kind} on the {lane} stream"] += 1

    def launched(self, action: Prefill, controller: TransferController, behind: str) -> None:
        """behind: "works" or "fails", as another pass of the request whose end was not seen does;
        empty if there is none."""
        if behind:
            self.seen[f"a pass is launched behind one that {behind} on the device"] += 1
        waits = any(controller.load_marks(flight) for flight in action.after)
        self.seen["a pass waits for its load on the device"] += waits
        moving = bool(self._device.moving)
        self.seen["a pass is launched while a copy moves"] += moving

    def replied(self, one: Pending, fine: bool) -> None:
        kind = "load" if isinstance(one.action, Load) else "backup"
        if not fine:
            self.seen[f"a {kind} failed on the device"] += 1
            self.seen[f"a {kind} failed with another of its batch"] += not one.fault


LONGEST = 20_000  # maximum stall, so that no work is lost for ever
_Pass = tuple[Prefill, Plan, Sequence]
_LANES = {Prefill: COMPUTE, Backup: WRITE, Load: LOAD}


class DeviceHand(Hand):
    """A hand with a simulated device; see the module."""

    can_store = False

    def __init__(
        self,
        config: Config,
        settings: DeviceSettings,
        order: str = "time",
        watch: Watch | None = None,
        remember: bool = True,
        real: str = "",
        seed: int = 0,
    ) -> None:
        """real, seed: see `Rig`."""
        super().__init__(config, order, watch, remember)
        self.rig = Rig(config, settings, self.core.view, real, seed)
        self.states = DeviceStates(self.probes.seen, self.rig.device, self.done)
        observers = (self.watch, self.probes, self.states, *self.rig.observers)
        self._driver = Driver(self.core, self, observers)
        self._layers, self._batched = settings.layers, bool(settings.batched)
        self._sequences: dict[int, Sequence] = {}
        self._queued: dict[str, list[tuple[Load | Backup, Plan]]] = {WRITE: [], LOAD: []}
        self._passes: list[_Pass] = []
        self._ended: dict[str, deque[int]] = {name: deque() for name in _LANES.values()}
        self._said: dict[int, bool] = {}  # success by flight
        self._lost: set[int] = set()  # loads and passes that are going to fail
        self._pages: dict[int, str] = {}  # by tag, the first page with this content
        self.rig.memory.whose = lambda tag: self._pages.get(tag, f"content of nobody ({tag:#x})")

    # -- what the core is told, and what it says

    def feed(self, event: Event) -> list[Outcome]:
        if isinstance(event, Finished | Retracted):
            self._leave(event.request)
        return super().feed(event)

    def see(self, item: Outcome) -> None:
        super().see(item)
        if isinstance(item, Prefill | Granted | Cached):
            sequence = self._sequences.get(item.request)
            if sequence is not None:
                sequence.set_tables(item)
        elif isinstance(item, Released):
            self._sequences.pop(item.request, None)

    def _leave(self, request: int) -> None:
        """Verifies the decoded pages of a request before it leaves."""
        job, sequence = self.jobs.get(request), self._sequences.get(request)
        if job is not None and sequence is not None and job.stage == "decoding":
            self.rig.forward.report_decoded(sequence, leaving=True)

    # -- work begins

    def carry_out(self, one: Pending, tie: int) -> None:
        action, late = one.action, min(LONGEST, max(0, one.due - self.now))
        failing = -1 if kind_of(one.fault, type(action).__name__).fine else tie
        parts = 1 + tie
        if tie % 2:
            plan = Plan(lag=late, parts=parts, failing=failing)
        elif tie and not isinstance(action, Prefill):
            plan = Plan(pause=late // parts, parts=parts, failing=failing)
        else:
            plan = Plan(stall=late, parts=parts, failing=failing)
        if isinstance(action, Prefill):
            job = self.jobs[action.request]
            self._passes.append((action, plan, self._sequence(job, job.tokens)))
        elif isinstance(action, Load | Backup):
            self.rig.controller.submit(action)
            self._queued[_LANES[type(action)]].append((action, plan))

    def _start(self) -> None:
        """Issues submitted work: one batch of transfers per direction if its stream has room, then
        passes.
        """
        rig = self.rig
        rig.run_to(self.now)
        plans = {
            name: self._merged(name, queued) for name, queued in self._queued.items() if queued
        }
        for name, plan in plans.items():
            rig.device.plan(rig.device.stream(name), plan)
        rig.controller.start()
        for name, plan in plans.items():
            queued = self._queued[name]
            if rig.device.sent(rig.device.stream(name)):
                self.states.batch(name, len(queued))
                if plan.failing >= 0:
                    self._lost |= {action.flight for action, _ in queued}
                queued.clear()
        passes, self._passes = self._passes, []
        for action, plan, _ in passes:
            before = {*action.after, self.follows.get(action.flight, -1)}
            if plan.failing >= 0 or before & self._lost:
                self._lost.add(action.flight)
        for batch in self._batches(passes):
            self._launch(batch)

    def _merged(self, name: str, queued: list[tuple[Load | Backup, Plan]]) -> Plan:
        """Merges the plans of a batch by taking the maximum of each field."""
        plans = [plan for _, plan in queued]
        parts = {copy.component for action, _ in queued for copy in action.copies}
        copies = len(parts) * (self._layers if name == LOAD else 1)
        return Plan(
            max(plan.stall for plan in plans),
            max(plan.pause for plan in plans),
            max(plan.lag for plan in plans),
            max(plan.parts for plan in plans),
            max(plan.failing % copies if plan.failing >= 0 else -1 for plan in plans),
        )

    def _batches(self, passes: list[_Pass]) -> list[list[_Pass]]:
        """Each pass alone, or with `batched` as many as possible together. A pass that fails stays
        alone, and one that follows another of its request is in a later batch."""
        batches: list[list[_Pass]] = []
        for one in passes:
            action, last = one[0], batches[-1] if batches and self._batched else []
            flights = {action.flight, *(other.flight for other, _, _ in last)}
            if last and not flights & {self.follows.get(action.flight), *self._lost}:
                last.append(one)
            else:
                batches.append([one])
        return batches

    def _launch(self, batch: list[_Pass]) -> None:
        rig = self.rig
        plans = [plan for _, plan, _ in batch]
        stall, lag = max(plan.stall for plan in plans), max(plan.lag for plan in plans)
        rig.device.plan(rig.device.stream(COMPUTE), plans[0]._replace(stall=stall, lag=lag))
        first = batch[0][0]
        rig.passes.layer = stall
        rig.passes.failing = first.flight if first.flight in self._lost else 0
        rig.passes.unread = not self._lost.isdisjoint(first.after)
        for action, _, _ in batch:
            before = self.follows.get(action.flight)
            works = "fails" if before in self._lost else "works"
            behind = "" if before is None or before in self._said else works
            self.states.launched(action, rig.controller, behind)

        def passed() -> None:
            for action, _, _ in batch:
                self._passed(action)

        rig.forward.launch([(sequence, action) for action, _, sequence in batch], 0, 0, passed)
        rig.passes.failing, rig.passes.unread = 0, False

    def _sequence(self, job: Job, tokens: list[int]) -> Sequence:
        """The engine's record of a request, with the content of these tokens."""
        found = self._sequences.get(job.id)
        if found is None:
            request = Request(job.id, 0, len(tokens), 0)
            found = self._sequences[job.id] = Sequence(request, 1, len(tokens), 0)
        if len(found.tags) != len(tokens) // self.config.page_size or found.length != len(tokens):
            found.length = len(tokens)
            found.tags = prefix_tags(Key.from_tokens(tokens, self.config.page_size, job.namespace))
            for at, tag in enumerate(found.tags.tolist()):
                self._pages.setdefault(tag, f"page {at} of request {job.id}")
        return found

    def decode(self, job: Job, ids: list[int], tokens: list[int], span: tuple[int, int]) -> None:
        super().decode(job, ids, tokens, span)
        self.rig.run_to(self.now)
        sequence = self._sequence(job, tokens)
        sequence.reported, sequence.held = span
        self.rig.forward.report_decoded(sequence)

    # -- work ends

    def done(self) -> bool:
        """Whether the host has seen an end that was not reported to the core yet."""
        return any(self._ended.values())

    def _passed(self, action: Prefill) -> None:
        """Records the end of a pass. It has failed if its load failed."""
        controller = self.rig.controller
        lost = [
            flight
            for flight in action.after
            if controller.load_failed(flight) or not self._said.get(flight, True)
        ]
        self._end(action.flight, COMPUTE, not lost)

    def _end(self, flight: int, lane: str, fine: bool) -> None:
        self._said[flight] = fine
        self._ended[lane].append(flight)

    def _look(self) -> None:
        """Polls the end of all work, and starts waiting work."""
        rig = self.rig
        rig.run_to(self.now)
        self.now = max(self.now, rig.clock.now_ns)
        rig.passes.poll()
        for reply in rig.controller.poll():
            if isinstance(reply, LoadDone | BackupDone):
                self._end(reply.flight, WRITE if type(reply) is BackupDone else LOAD, reply.ok)
        rig.shadow.check()
        self._start()
        self._count()

    def _count(self) -> None:
        """Checks that the controller has exactly the unanswered transfers."""
        owed = [one for one in self.pending if one.number not in self._said]
        copies = sum(not isinstance(one.action, Prefill) for one in owed)
        found = self.rig.controller.unanswered
        if found != copies:
            raise StuckError(f"device: expected {copies} unanswered transfers, found {found}")

    def _pass_time(self) -> None:
        """Advances time to the next event of the device."""
        next_ns = self.rig.clock.next_ns()
        if next_ns < 0:
            kinds = ", ".join(f"{type(one.action).__name__} {one.number}" for one in self.pending)
            raise StuckError(
                f"device: nothing is going to happen, and there are still: {kinds}",
                "",
                *(About("flight", one.number) for one in self.pending),
            )
        self.now = max(self.now, next_ns)
        self._look()

    def _heads(self) -> list[Pending]:
        first = [lane[0] for lane in self._ended.values() if lane]
        return [one for one in self.pending if one.number in first]

    def take_due(self) -> int:
        taken = 0
        if self.blind:
            self.blind -= 1
            return 0
        while True:
            self._look()
            heads = self._heads()
            self.states.looked(heads)
            one = self.schedule.choose(heads, self.pending) if heads else None
            if one is None:
                return taken
            self.take(one)
            self.finish()
            taken += 1

    def take(self, one: Pending) -> None:
        """Delivers a reply to the core, when the host has seen the end."""
        if one.number not in self._said:
            self._look()
        while one.number not in self._said:
            self._pass_time()
        self._ended[_LANES[type(one.action)]].remove(one.number)
        super().take(one)

    def went_well(self, one: Pending, fine: bool) -> bool:
        """Whether the work succeeded on the device; a pass may also fail by its fault."""
        action = one.action
        well = self._said[one.number]
        if not isinstance(action, Prefill):
            self.states.replied(one, well)
            return well
        well = well and fine
        sequence, job = self._sequences.get(action.request), self.jobs.get(action.request)
        if well and sequence is not None and job is not None and action.flight in job.flights:
            sequence.held = sequence.reported = action.end_token
        return well

    def settle(self) -> None:
        self.blind = 0
        while self.pending:
            if self.take_due():
                continue
            heads = self._heads()
            if heads:
                self.take(min(heads, key=by_time))
                self.finish()
            else:
                self._pass_time()

    def wait(self) -> bool:
        if not self.pending:
            return False
        self._look()
        while not self.done() and self.rig.clock.next_ns() >= 0:
            self._pass_time()
        self.take_due()
        return True

    # -- at rest

    def at_rest(self) -> None:
        """Checks all cached pages, and that free pages were not written, when nothing runs."""
        super().at_rest()
        rig = self.rig
        self._count()
        rig.run_dry()
        self.now = max(self.now, rig.clock.now_ns)
        audit(self.core.view, rig.memory)
        rig.shadow.sweep()
        rig.run_dry()
        rig.device.check_at_rest()
        if not rig.shadow.check():
            raise StuckError("device: a look at a free page was never answered")

    def close(self) -> None:
        self.rig.device.close()
