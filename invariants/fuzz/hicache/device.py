"""A player with a device: the real controller and a simulated device carry out copies and passes,
with the detector of hazards in front, and the bytes of every page.

The delay of an act is used by its tie. Tie 0 and 2: a stall before the work. Odd tie: the time
until the host sees the end. A copy has 1 + tie parts. An act with a failure makes one copy of its
batch fail, and so the batch. Submitted work starts at the host's next poll, with transfers merged
into batches.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Backup, Cached, Granted, Load, Outcome, Prefill, Released
from hicache.core.errors import About
from hicache.core.events import BackupDone, Event, Finished, LoadDone, Retracted
from hicache.core.types import Key, Tier
from hicache.devices.base import Access, CopyJob, DeviceEvent, Stream
from hicache.runtime.controller import COMPUTE, LOAD, WRITE, ControllerOptions, TransferController
from invariants.checker import Checker
from invariants.fuzz.hicache.player import Player, kind_of
from invariants.fuzz.hicache.ranks import RankedPlayer
from invariants.fuzz.hicache.stored import RealStore
from invariants.fuzz.schedules import Job, Pending, by_time
from invariants.fuzz.sequence import FILES, FuzzSequence, settings_of
from sim.clock import Clock
from sim.content import Words, prefix_tags
from sim.device.guard import FreedPages, Guard
from sim.device.hazards import Hazards
from sim.device.link import Link
from sim.device.memory import Memory, audit
from sim.device.simulated import SimDevice, SimDeviceOptions
from sim.engine.forward import Accesses, Forward
from sim.engine.sequence import Sequence as Running
from sim.errors import StuckError
from sim.workload import Job as Request

LONGEST = 20_000  # maximum stall, so that no work is lost for ever
RATE = 10**9  # one byte per nanosecond, so a page's bytes equal its nanoseconds
_TRANSFER_QUEUES: dict[type, str] = {Prefill: COMPUTE, Backup: WRITE, Load: LOAD}


def player_of(sequence: FuzzSequence, checker: Checker | None = None) -> Player:
    """The player that plays a sequence."""
    if sequence.ranks > 1:
        return RankedPlayer(sequence, checker)
    if settings := settings_of(sequence.executor):
        return DevicePlayer(sequence, settings, checker)
    player = Player(sequence.config, sequence.order, checker, sequence.pairs)
    if sequence.executor == FILES:
        player.real_store = RealStore(sequence.config, sequence.seed)
    return player


class Plan(NamedTuple):
    """What the next work on a stream does. stall: delay before it starts. lag: time until the host
    sees its end. parts: chunks of each copy. failing: the copy that fails, -1 for none."""

    stall: int = 0
    lag: int = 0
    parts: int = 1
    failing: int = -1


class PlannedDevice(SimDevice):
    """A simulated device that follows plans instead of draws, and the model's passes on it.

    sent: copies issued under the present plan of a stream. lost: whether the pass that is launched
    is going to fail, or follows one that does: it writes unique bytes, and reads anything.
    """

    def __init__(self, clock: Clock, link: Link, page_ns: tuple[int, ...], memory: Memory) -> None:
        failing: set[int] = set()
        sizes = {component: page_ns for _, component in memory.places}
        options = SimDeviceOptions(
            sizes, faults=lambda copy, _: copy in failing, write_pattern=False
        )
        super().__init__(clock, link, options, memory)
        self.plans: dict[Stream, Plan] = {}
        self.sent: dict[Stream, int] = {}
        self.lost = False
        self._failing = failing
        self._bytes = memory
        self._lags: dict[int, int] = {}
        self._cut: dict[int, int] = {}  # by copy, its parts
        self._open: deque[tuple[DeviceEvent, Callable[[], None]]] = deque()

    def plan(self, stream: Stream, plan: Plan) -> None:
        """Sets the plan of a stream from now on."""
        self.plans[stream], self.sent[stream] = plan, 0

    def record(self, stream: Stream) -> DeviceEvent:
        self._lags[len(self._reached_ns)] = self.plans.get(stream, Plan()).lag
        return super().record(stream)

    def copy(self, stream: Stream, job: CopyJob) -> None:
        plan, turn = self.plans[stream], self.sent[stream]
        if turn == 0 and plan.stall:
            self.compute(stream, plan.stall)
        if turn == plan.failing:
            self._failing.add(self._copies)
        self._cut[self._copies] = plan.parts
        self.sent[stream] = turn + 1
        super().copy(stream, job)

    def _lag_ns(self, line: object, device_event: int) -> int:
        return self._lags[device_event]

    def _parts(self, number: int) -> int:
        return self._cut[number]

    # -- the model: a layer takes the stall of its pass

    def layer_ns(self, chunks: Sequence[tuple[int, int]], decoding: int, context: int, /) -> int:
        return self.plans[self.stream(COMPUTE)].stall

    def overhead_ns(self, chunks: Sequence[tuple[int, int]], decoding: int, /) -> int:
        return 0

    def compute(self, stream: Stream, duration_ns: int) -> None:
        if duration_ns:
            super().compute(stream, duration_ns)

    def publish(self, stream: Stream, access: Access, tags: Words) -> None:
        own = self._bytes.pattern_tags(access.pages) if self.lost else tags
        super().publish(stream, access, own)

    def verify(
        self, stream: Stream, access: Access, tags: Words, unless: tuple[DeviceEvent, ...] = ()
    ) -> None:
        if not self.lost:
            super().verify(stream, access, tags, unless)

    def sync(self, device_event: DeviceEvent, action: Callable[[], None]) -> None:
        """The host polls for the end of passes."""
        self._open.append((device_event, action))

    def poll(self) -> None:
        while self._open and self.query(self._open[0][0]):
            self._open.popleft()[1]()


class DevicePlayer(Player):
    """A player with a device; see the module."""

    def __init__(
        self, sequence: FuzzSequence, settings: tuple[int, ...], checker: Checker | None = None
    ) -> None:
        super().__init__(sequence.config, sequence.order, checker)
        config, (layers, page_ns, latency_ns, depth) = sequence.config, settings
        places = {
            (tier, component): count
            for tier, counts in ((Tier.DEVICE, config.device_pages), (Tier.HOST, config.host_pages))
            for component, count in zip(config.components, counts, strict=True)
        }
        self.clock, self.memory = Clock(), Memory(places, layers)
        link = Link(self.clock, RATE, RATE * 3 // 2, latency_ns)
        device = PlannedDevice(self.clock, link, (page_ns,) * layers, self.memory)
        self.device, self.guard = device, Guard(device, Hazards(places, layers))
        options = ControllerOptions(backup_batches=depth)
        self.controller = TransferController(self.guard, options)
        accesses = Accesses(config, self.core.view.components)
        self.forward = Forward(device, self.guard, self.controller, device, accesses, checked=True)  # type: ignore[arg-type]
        self.observe(FreedPages(self.guard))
        for (tier, component), count in places.items():
            self.guard.freed(tier, component, np.arange(count, dtype=np.int64))
        self._running: dict[int, Running] = {}
        self._queued: dict[str, list[tuple[Load | Backup, Plan]]] = {WRITE: [], LOAD: []}
        self._launches: list[tuple[Prefill, Plan, Running]] = []
        self._ended: dict[str, deque[int]] = {item: deque() for item in _TRANSFER_QUEUES.values()}
        self._fine: dict[int, bool] = {}  # success by transfer
        self._lost: set[int] = set()  # loads and passes that are going to fail

    # -- what the core is told, and what it says

    def feed(self, event: Event) -> list[Outcome]:
        if isinstance(event, Finished | Retracted):  # its decoded pages are verified
            running = self._running.get(event.request)
            if running is not None and self.job(event.request, "decoding"):
                self.forward.report_decoded(running, leaving=True)
        outcomes = super().feed(event)
        for item in outcomes:
            if isinstance(item, Prefill | Granted | Cached) and item.request in self._running:
                self._running[item.request].set_tables(item)
            elif isinstance(item, Released):
                self._running.pop(item.request, None)
        return outcomes

    def decode(self, job: Job, start: int) -> None:
        self._run()
        running = self._of(job)
        running.reported, running.kv_tokens = start, job.committed
        self.forward.report_decoded(running)

    def _of(self, job: Job) -> Running:
        """The engine's record of a request, with the content of its tokens."""
        tokens = job.tokens
        if job.id not in self._running:
            request = Request(job.id, 0, len(tokens), 0)
            self._running[job.id] = Running(request, 1, len(tokens), 0)
        running, page = self._running[job.id], self.config.page_size
        if len(running.tags) != len(tokens) // page or running.length != len(tokens):
            running.length = len(tokens)
            running.tags = prefix_tags(Key.from_tokens(tokens, page, job.namespace))
        return running

    # -- work begins

    def carry_out(self, pending: Pending, tie: int) -> None:
        action, late = pending.action, min(LONGEST, max(0, pending.due - self.now))
        failing = -1 if kind_of(pending.fault, pending.kind).fine else tie
        plan = Plan(*((0, late) if tie % 2 else (late, 0)), 1 + tie, failing)
        if isinstance(action, Prefill):
            job = self.jobs[action.request]
            self._launches.append((action, plan, self._of(job)))
        elif isinstance(action, Load | Backup):
            self.controller.submit(action)
            self._queued[_TRANSFER_QUEUES[type(action)]].append((action, plan))

    def _start(self) -> None:
        """Issues submitted work: one batch of transfers per direction if its stream has room, then
        passes."""
        device = self.device
        streams = {item: device.stream(item) for item, queued in self._queued.items() if queued}
        for transfer_queue, stream in streams.items():
            device.plan(stream, self._merged(transfer_queue))
        self.controller.start()
        for transfer_queue, stream in streams.items():
            if device.sent[stream]:
                if device.plans[stream].failing >= 0:
                    self._lost |= {action.transfer for action, _ in self._queued[transfer_queue]}
                self._queued[transfer_queue].clear()
        launches, self._launches = self._launches, []
        for action, plan, running in launches:
            before = {*action.after, self.follows.get(action.transfer, -1)}
            device.lost = plan.failing >= 0 or not before.isdisjoint(self._lost)
            self._lost |= {action.transfer} if device.lost else set()
            device.plan(device.stream(COMPUTE), plan)

            def passed(action: Prefill = action) -> None:  # it fails if one of its loads did
                failed = self.controller.load_failed
                well = [not failed(load) and self._fine.get(load, True) for load in action.after]
                self._end(action.transfer, COMPUTE, all(well))

            self.forward.launch([(running, action)], 0, 0, passed)
        device.lost = False

    def _merged(self, transfer_queue: str) -> Plan:
        """The plan of a batch: the maximum of each field."""
        plans = [plan for _, plan in self._queued[transfer_queue]]
        parts = {copy.component for item, _ in self._queued[transfer_queue] for copy in item.copies}
        copies = len(parts) * (self.device.layers if transfer_queue == LOAD else 1)
        failing = [plan.failing % copies for plan in plans if plan.failing >= 0]
        stall, lag, cut, _ = map(max, zip(*plans, strict=True))
        return Plan(stall, lag, cut, max(failing, default=-1))

    # -- work ends

    def _end(self, transfer: int, transfer_queue: str, fine: bool) -> None:
        self._fine[transfer] = fine
        self._ended[transfer_queue].append(transfer)

    def _run(self, dry: bool = False) -> None:
        """Runs the events of the device until now, or all of them."""
        if self.now > self.clock.now_ns:
            self.clock.after(self.now - self.clock.now_ns, lambda: None)
        while 0 <= self.clock.next_ns() <= self.now or (dry and self.clock.next_ns() >= 0):
            self.clock.step()
        self.now = max(self.now, self.clock.now_ns)

    def _poll(self) -> None:
        """Looks for the end of all work, and starts waiting work."""
        self._run()
        self.device.poll()
        for reply in self.controller.poll():
            if isinstance(reply, LoadDone | BackupDone):
                self._end(reply.transfer, LOAD if isinstance(reply, LoadDone) else WRITE, reply.ok)
        self.guard.check()
        self._start()

    def _pass_time(self) -> None:
        """Advances time to the next event of the device."""
        next_ns = self.clock.next_ns()
        if next_ns < 0:
            about = [About("transfer", pending.number) for pending in self.pending]
            text = f"device: nothing is going to happen, and there are still {self.pending}"
            raise StuckError(text, "", *about)
        self.now = max(self.now, next_ns)
        self._poll()

    def _heads(self) -> list[Pending]:
        first = [transfer_queue[0] for transfer_queue in self._ended.values() if transfer_queue]
        return [pending for pending in self.pending if pending.number in first]

    def ready(self) -> list[Pending]:
        self._poll()
        return self._heads()

    def take(self, pending: Pending) -> None:
        """Delivers a reply to the core, when the host has seen the end."""
        if pending.number not in self._fine:
            self._poll()
        while pending.number not in self._fine:
            self._pass_time()
        self._ended[_TRANSFER_QUEUES[type(pending.action)]].remove(pending.number)
        super().take(pending)

    def went_well(self, pending: Pending, fine: bool) -> bool:
        """Whether the work succeeded on the device; a pass may also fail by its fault."""
        action, well = pending.action, self._fine[pending.number]
        if not isinstance(action, Prefill):
            return well
        running, job = self._running.get(action.request), self.jobs.get(action.request)
        if well and fine and running and job and action.transfer in job.transfers:
            running.kv_tokens = running.reported = action.end_token
        return well and fine

    def settle(self) -> None:
        while self.pending:
            if self.take_due():
                continue
            if heads := self._heads():
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

    def at_rest(self) -> None:
        """Checks all cached pages, and that free pages were not written, when nothing runs."""
        self._run(dry=True)
        audit(self.core.view, self.memory)
        self.guard.sweep()
        self._run(dry=True)
        self.guard.check()
