"""A hand with a device: the real controller and a simulated device carry out copies and passes,
with the detector of hazards in front, and the bytes of every page.

The delay of an act is used by its tie. Tie 0 and 2: a stall before the work. Odd tie: the time
until the host sees the end. A copy has 1 + tie parts. An act with a failure makes one copy of its
batch fail, and so the batch. Submitted work starts at the host's next poll, with transfers merged
into batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from hicache.core.actions import Backup, Cached, Granted, Load, Outcome, Prefill, Released
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import BackupDone, Event, Finished, LoadDone, Retracted
from hicache.core.types import Key, Tier
from hicache.devices.base import Mark, Stream, Touch
from hicache.runtime.controller import COMPUTE, LOAD, WRITE, ControllerOptions, TransferController
from invariants.fuzz.hicache.device import MirroredDevice, Plan, PlannedDevice
from invariants.fuzz.hicache.executors import PLAIN, device_of, settings_of
from invariants.fuzz.hicache.faults.base import kind_of
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ranks import RankedHand
from invariants.fuzz.records import Job, Pending
from invariants.fuzz.schedules import by_time
from invariants.fuzz.sequence import Tape
from invariants.watch import Watch
from sim.clock import Clock
from sim.content import Words, prefix_tags
from sim.device.hazards import Hazards
from sim.device.link import Link
from sim.device.memory import Memory, audit
from sim.device.shadow import FreedPages, Shadow
from sim.engine.accesses import Accesses
from sim.engine.forward import Forward
from sim.engine.sequence import Sequence as Running
from sim.errors import StuckError
from sim.workload import Job as Request

LONGEST = 20_000  # maximum stall, so that no work is lost for ever
RATE = 10**9  # one byte per nanosecond, so a page's bytes equal its nanoseconds
_LANES = {Prefill: COMPUTE, Backup: WRITE, Load: LOAD}


def hand_of(tape: Tape, watch: Watch | None = None) -> Hand:
    """The hand that plays a sequence."""
    if tape.ranks > 1:
        return RankedHand(tape.config, tape.order, watch, tape.ranks, tape.pairs)
    if settings_of(tape.executor) is not None:
        return DeviceHand(tape.config, tape.executor, tape.order, watch, tape.seed)
    return Hand(tape.config, tape.order, watch, pairs=tape.pairs)


class Passes:
    """The model of a sequence. layer: nanoseconds per layer. lost: whether the pass that is
    launched is going to fail, or follows one that does: it writes unique bytes, and reads anything.
    """

    def __init__(self, device: PlannedDevice, layers: int) -> None:
        self.layers, self.layer, self.lost = layers, 0, False
        self._device = device
        self._open: deque[tuple[Mark, Callable[[], None]]] = deque()

    def layer_ns(self, chunks: Sequence[tuple[int, int]], decoding: int, context: int, /) -> int:
        return self.layer

    def overhead_ns(self, chunks: Sequence[tuple[int, int]], decoding: int, /) -> int:
        return 0

    def compute(self, stream: Stream, duration_ns: int) -> None:
        if duration_ns:
            self._device.compute(stream, duration_ns)

    def publish(self, stream: Stream, touch: Touch, tags: Words) -> None:
        lost = self._device.bytes.scribble_tags(touch.pages) if self.lost else tags
        self._device.publish(stream, touch, lost)

    def verify(
        self, stream: Stream, touch: Touch, tags: Words, unless: tuple[Mark, ...] = ()
    ) -> None:
        if not self.lost:
            self._device.verify(stream, touch, tags, unless)

    def sync(self, mark: Mark, action: Callable[[], None]) -> None:
        self._open.append((mark, action))

    def poll(self) -> None:
        """Ends every pass whose end the host can see."""
        while self._open and self._device.query(self._open[0][0]):
            self._open.popleft()[1]()


class DeviceHand(Hand):
    """A hand with a device; see the module."""

    can_store = False

    def __init__(
        self,
        config: Config,
        executor: str,
        order: str = "time",
        watch: Watch | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(config, order, watch)
        settings, name = settings_of(executor) or PLAIN, device_of(executor)
        places = {
            (tier, component): count
            for tier, counts in ((Tier.DEVICE, config.device_pages), (Tier.HOST, config.host_pages))
            for component, count in zip(config.components, counts, strict=True)
        }
        self.clock, self.memory = Clock(), Memory(places, settings.layers)
        link = Link(self.clock, RATE, RATE * 3 // 2, settings.latency_ns)
        sizes = dict.fromkeys(config.components, (settings.page_ns,) * settings.layers)
        parts = self.clock, link, sizes, self.memory
        self.device = MirroredDevice(parts, name, config, seed) if name else PlannedDevice(parts)
        self.shadow = Shadow(self.device, Hazards(places, settings.layers))
        options = ControllerOptions(backup_batches=settings.depth)
        self.controller = TransferController(self.shadow, options)
        self.passes = Passes(self.device, settings.layers)
        accesses = Accesses(config, self.core.view.components)
        self.forward = Forward(
            self.passes, self.shadow, self.controller, self.passes, accesses, checked=True
        )
        self.observe_last(FreedPages(self.shadow))
        for (tier, component), count in places.items():
            self.shadow.freed(tier, component, np.arange(count, dtype=np.int64))
        self._running: dict[int, Running] = {}
        self._queued: dict[str, list[tuple[Load | Backup, Plan]]] = {WRITE: [], LOAD: []}
        self._launches: list[tuple[Prefill, Plan, Running]] = []
        self._ended: dict[str, deque[int]] = {lane: deque() for lane in _LANES.values()}
        self._fine: dict[int, bool] = {}  # success by flight
        self._lost: set[int] = set()  # loads and passes that are going to fail
        self._pages: dict[int, str] = {}  # by tag, the first page with this content
        self.memory.whose = lambda tag: self._pages.get(tag, f"content of nobody ({tag:#x})")

    # -- what the core is told, and what it says

    def feed(self, event: Event) -> list[Outcome]:
        if isinstance(event, Finished | Retracted):  # its decoded pages are verified
            job, running = self.jobs.get(event.request), self._running.get(event.request)
            if job is not None and running is not None and job.stage == "decoding":
                self.forward.report_decoded(running, leaving=True)
        return super().feed(event)

    def see(self, item: Outcome) -> None:
        super().see(item)
        if isinstance(item, Prefill | Granted | Cached) and item.request in self._running:
            self._running[item.request].set_tables(item)
        elif isinstance(item, Released):
            self._running.pop(item.request, None)

    def decode(self, job: Job, ids: list[int], tokens: list[int], span: tuple[int, int]) -> None:
        super().decode(job, ids, tokens, span)
        self._run_to(self.now)
        running = self._sequence(job, tokens)
        running.reported, running.held = span
        self.forward.report_decoded(running)

    def _sequence(self, job: Job, tokens: list[int]) -> Running:
        """The engine's record of a request, with the content of these tokens."""
        if job.id not in self._running:
            request = Request(job.id, 0, len(tokens), 0)
            self._running[job.id] = Running(request, 1, len(tokens), 0)
        running, page = self._running[job.id], self.config.page_size
        if len(running.tags) != len(tokens) // page or running.length != len(tokens):
            running.length = len(tokens)
            running.tags = prefix_tags(Key.from_tokens(tokens, page, job.namespace))
            for at, tag in enumerate(running.tags.tolist()):
                self._pages.setdefault(tag, f"page {at} of request {job.id}")
        return running

    # -- work begins

    def carry_out(self, one: Pending, tie: int) -> None:
        action, late = one.action, min(LONGEST, max(0, one.due - self.now))
        failing = -1 if kind_of(one.fault, type(action).__name__).fine else tie
        stall, lag = (0, late) if tie % 2 else (late, 0)
        plan = Plan(stall, lag, 1 + tie, failing)
        if isinstance(action, Prefill):
            job = self.jobs[action.request]
            self._launches.append((action, plan, self._sequence(job, job.tokens)))
        elif isinstance(action, Load | Backup):
            self.controller.submit(action)
            self._queued[_LANES[type(action)]].append((action, plan))

    def _start(self) -> None:
        """Issues submitted work: one batch of transfers per direction if its stream has room, then
        passes."""
        device = self.device
        lanes = {lane: device.stream(lane) for lane, queued in self._queued.items() if queued}
        for lane, stream in lanes.items():
            device.plan(stream, self._merged(lane))
        self.controller.start()
        for lane, stream in lanes.items():
            if device.sent[stream]:
                if device.plans[stream].failing >= 0:
                    self._lost |= {action.flight for action, _ in self._queued[lane]}
                self._queued[lane].clear()
        launches, self._launches = self._launches, []
        for action, plan, running in launches:
            before = {*action.after, self.follows.get(action.flight, -1)}
            self.passes.lost = plan.failing >= 0 or not before.isdisjoint(self._lost)
            if self.passes.lost:
                self._lost.add(action.flight)
            device.plan(device.stream(COMPUTE), plan)
            self.passes.layer = plan.stall
            ended = [(running, action)]
            self.forward.launch(ended, 0, 0, lambda action=action: self._passed(action))  # type: ignore[misc]
        self.passes.lost = False

    def _merged(self, lane: str) -> Plan:
        """The plan of a batch: the maximum of each field."""
        plans = [plan for _, plan in self._queued[lane]]
        parts = {copy.component for action, _ in self._queued[lane] for copy in action.copies}
        copies = len(parts) * (self.device.layers if lane == LOAD else 1)
        failing = [plan.failing % copies for plan in plans if plan.failing >= 0]
        stall, lag, cut, _ = map(max, zip(*plans, strict=True))
        return Plan(stall, lag, cut, max(failing, default=-1))

    # -- work ends

    def _passed(self, action: Prefill) -> None:
        """A pass has failed if one of its loads did."""
        failed = self.controller.load_failed
        loads = [not failed(load) and self._fine.get(load, True) for load in action.after]
        self._end(action.flight, COMPUTE, all(loads))

    def _end(self, flight: int, lane: str, fine: bool) -> None:
        self._fine[flight] = fine
        self._ended[lane].append(flight)

    def _run_to(self, time_ns: int) -> None:
        """Runs all events of the device until this time."""
        if time_ns > self.clock.now_ns:
            self.clock.after(time_ns - self.clock.now_ns, lambda: None)
        while 0 <= self.clock.next_ns() <= time_ns:
            self.clock.step()
        self.now = max(self.now, self.clock.now_ns)

    def _poll(self) -> None:
        """Looks for the end of all work, and starts waiting work."""
        self._run_to(self.now)
        self.passes.poll()
        for reply in self.controller.poll():
            if isinstance(reply, LoadDone | BackupDone):
                self._end(reply.flight, LOAD if isinstance(reply, LoadDone) else WRITE, reply.ok)
        self.shadow.check()
        self._start()

    def _pass_time(self) -> None:
        """Advances time to the next event of the device."""
        next_ns = self.clock.next_ns()
        if next_ns < 0:
            kinds = ", ".join(f"{type(one.action).__name__} {one.number}" for one in self.pending)
            about = [About("flight", one.number) for one in self.pending]
            text = f"device: nothing is going to happen, and there are still: {kinds}"
            raise StuckError(text, "", *about)
        self.now = max(self.now, next_ns)
        self._poll()

    def _heads(self) -> list[Pending]:
        first = [lane[0] for lane in self._ended.values() if lane]
        return [one for one in self.pending if one.number in first]

    def take_due(self) -> int:
        taken = 0
        if self.blind:
            self.blind -= 1
            return 0
        while True:
            self._poll()
            heads = self._heads()
            one = self.schedule.choose(heads, self.pending) if heads else None
            if one is None:
                return taken
            self.take(one)
            self.finish()
            taken += 1

    def take(self, one: Pending) -> None:
        """Delivers a reply to the core, when the host has seen the end."""
        if one.number not in self._fine:
            self._poll()
        while one.number not in self._fine:
            self._pass_time()
        self._ended[_LANES[type(one.action)]].remove(one.number)
        super().take(one)

    def went_well(self, one: Pending, fine: bool) -> bool:
        """Whether the work succeeded on the device; a pass may also fail by its fault."""
        action, well = one.action, self._fine[one.number]
        if not isinstance(action, Prefill):
            return well
        running, job = self._running.get(action.request), self.jobs.get(action.request)
        if well and fine and running is not None and job and action.flight in job.flights:
            running.held = running.reported = action.end_token
        return well and fine

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
        self._poll()
        while not any(self._ended.values()) and self.clock.next_ns() >= 0:
            self._pass_time()
        self.take_due()
        return True

    # -- at rest

    def at_rest(self) -> None:
        """Checks all cached pages, and that free pages were not written, when nothing runs."""
        super().at_rest()
        self._run_dry()
        audit(self.core.view, self.memory)
        self.shadow.sweep()
        self._run_dry()
        self.device.check_at_rest()
        if not self.shadow.check():
            raise StuckError("device: a look at a free page was never answered")

    def _run_dry(self) -> None:
        while self.clock.next_ns() >= 0:
            self.clock.step()
        self.now = max(self.now, self.clock.now_ns)

    def close(self) -> None:
        self.device.close()
