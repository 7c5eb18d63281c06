"""One replica: an engine with its own core, simulated device, host memory and store, on a clock
that it may share with others. With checks on, a memory and the hazard detector too.
"""

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hicache.core.actions import KvRemoved, KvStored
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.types import Tier
from hicache.devices.base import Device, Direction
from hicache.models import ModelDescription
from hicache.models.base import stage_layers
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver, Executor, Observer, TieredExecutor

from .clock import Clock
from .device.hazards import HazardDevice, Hazards, places_of
from .device.link import Link
from .device.memory import Memory, audit
from .device.simulated import SimDevice, SimDeviceOptions
from .engine.engine import Engine
from .engine.forward import Accesses, Forward
from .engine.pipeline import Pipeline, StageUse
from .engine.running import Platform, PrefetchLimit, Relay
from .engine.sequence import RequestResult, Sequence, TokenGaps, final_length
from .errors import StuckError, too_small
from .hardware import HardwareProfile
from .options import EngineOptions, WorldOptions
from .recorder import Recorder
from .storage.contents import Contents, StoreOptions
from .storage.executor import PageBytes, TimedStore
from .times.base import TimeModel, make
from .workload import Workload

_WITH_ESTIMATES = "pure-roofline"
KV_EVENTS = (KvStored, KvRemoved)  # not in the digest: they tell again what other outcomes say


@dataclass(frozen=True, slots=True)
class Machine:
    """device: `sim` itself, or with checks on a HazardDevice in front of it. Report accesses to
    `device`. links: of one rank of each stage of the pipeline.
    """

    clock: Clock
    links: tuple[Link, ...]
    sim: SimDevice
    device: Device
    memory: Memory | None
    hazards: Hazards | None


def build(
    config: Config,
    model: ModelDescription,
    profile: HardwareProfile,
    groups: int,
    options: WorldOptions,
    write_pattern: bool = True,
    clock: Clock | None = None,
) -> Machine:
    """Builds a machine. groups: number of layer groups, into which a load is divided.
    write_pattern: see SimDeviceOptions. With options.checks "off", memory and hazards are None.
    clock: None for one of its own.
    """
    clock, ranks = clock or Clock(), options.parallelism
    # A page is on the ranks of one group, and the links of other groups carry other pages.
    single = ranks.attention_dp * profile.reached_link_bytes_per_s
    both = ranks.attention_dp * profile.shared_bytes_per_s(options.times != _WITH_ESTIMATES)
    latency_ns, curves = profile.copy_latency_ns, profile.curves
    links = tuple(Link(clock, single, both, latency_ns, curves) for _ in range(ranks.pp))
    sizes, to_host = (
        {
            name: group_bytes(model, name, config.page_size, groups, ranks.attention_tp, among)
            for name in config.components
        }
        for among in (ranks.dcp, ranks.among_on_host)
    )
    device_options = SimDeviceOptions(
        sizes,
        options.seed,
        options.lag_ns,
        faults=options.faults,
        write_pattern=write_pattern,
        to_host=to_host,
    )
    if options.checks == "off":
        sim = SimDevice(clock, links, device_options)
        return Machine(clock, links, sim, sim, None, None)
    places = places_of(config)
    memory, hazards = Memory(places, groups), Hazards(places, groups, 4 * ranks.pp)
    sim = SimDevice(clock, links, device_options, memory)
    return Machine(clock, links, sim, HazardDevice(sim, hazards), memory, hazards)


def layer_groups(wanted: int, layers: int, stages: int) -> int:
    """The number of layer groups: as many as wanted, but no more than layers, and the same number
    in each stage of a pipeline."""
    return max(1, min(wanted, layers) // stages) * stages


def group_bytes(
    model: ModelDescription, component: str, page_size: int, groups: int, tp: int, among: int = 1
) -> tuple[int, ...]:
    """Returns the bytes of one page of a component on one rank, for each layer group. among:
    as for a pool."""
    bounds = [model.layers * group // groups for group in range(groups + 1)]
    return tuple(
        sum(
            replace(pool, layers=tuple(n for n in pool.layers if first <= n < last)).page_bytes(
                page_size, tp, among
            )
            for pool in model.pools_of(component)
        )
        for first, last in pairwise(bounds)
    )


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Use of one direction of the host link: bytes of finished copies, and busy time. Of pipeline
    stages the bytes of all, and the busy time of the busiest."""

    bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class WorldStorage:
    """The storage of a run. contents: what it has. value_bytes: of one value, by component in the
    order of the configuration. limit: how long a request may wait for its prefetch; None if none
    waits."""

    contents: Contents
    options: StoreOptions
    value_bytes: Mapping[str, int]
    limit: PrefetchLimit | None


@dataclass(frozen=True, slots=True)
class TimedResult:
    """The result of a run. requests: the requests that ended, by index; incomplete during the run.

    byte_checks: number of comparisons of pages. access_checks: number of accesses that the hazard
    detector checked. evicted: (component, pages on device, pages on host). reads, writes: use of
    storage; None without it. gaps: the times between tokens, of each engine and micro-batch.
    stages: use of the pipeline's stages; None for one.
    """

    requests: tuple[RequestResult, ...]
    makespan_ns: int
    d2h: LinkUse
    h2d: LinkUse
    core_events: int
    byte_checks: int
    access_checks: int
    digest: str
    evicted: tuple[tuple[str, int, int], ...] = ()
    reads: LinkUse | None = None
    writes: LinkUse | None = None
    gaps: tuple[TokenGaps, ...] = field(default=(), compare=False)
    stages: StageUse | None = None


class Replica:
    """See the module. Its work must have been served before `close`.

    results: of the requests that ended, by index. ended: how many requests ended.
    """

    def __init__(
        self,
        workload: Workload,
        config: Config,
        model: ModelDescription,
        profile: HardwareProfile,
        *,
        clock: Clock | None = None,
        engine: EngineOptions | None = None,
        options: WorldOptions | None = None,
        storage: WorldStorage | None = None,
        observers: abc.Sequence[Observer] = (),
        relay: Relay | None = None,
        costs: TimeModel | None = None,
    ) -> None:
        """clock: None for one of its own. relay: None for a replica that serves alone. costs: the
        time model; None for the one that the options name. Raises CallerError when a request can
        never fit."""
        engine, options = engine or EngineOptions(), options or WorldOptions()
        self._options = options
        _check_sizes(workload, config)
        self._workload = workload
        costs = costs or make(options.times, model, profile, options.parallelism, engine.profile)
        stages = options.parallelism.pp
        groups = layer_groups(engine.layer_groups, costs.layers, stages)
        self.clock = clock or Clock()
        self._machine = machine = build(
            config, model, profile, groups, options, write_pattern=False, clock=self.clock
        )
        self.core = Core(config)
        self.controller = TransferController(machine.device, stages=stage_layers(groups, stages))
        self._recorder = Recorder(lambda: self.clock.now_ns, KV_EVENTS)
        self.store: TimedStore | None = None
        executor: Executor = self.controller
        if storage is not None:
            page_bytes = PageBytes(machine.memory)
            self.store = TimedStore(
                self.clock, storage.options, storage.contents, storage.value_bytes, page_bytes
            )
            executor = TieredExecutor(self.controller, self.store)
        self.driver = Driver(self.core, executor, (self._recorder, *observers))
        accesses = Accesses(config, self.core.view.components)
        checked = machine.memory is not None
        forward = Forward(
            machine.sim,
            machine.device,
            self.controller,
            costs,
            accesses,
            checked,
            engine.profile,
            stages,
        )
        limit = storage.limit if storage is not None else None
        platform = Platform(
            self.clock, self.driver, self.controller, forward, costs, self.store, limit, relay
        )
        self.results: dict[int, RequestResult] = {}
        self.ended = 0
        self._makespan_ns = 0
        made = Engine if stages == 1 else Pipeline
        self.engine = made(workload, platform, engine, self._ended)
        if self.store is not None:
            self.store.listener = self.engine.storage_replied
        machine.sim.listener = self.engine.wake

    def close(self) -> None:
        """Compares the content of all pages, with checks on. Nothing may be in flight."""
        if self._machine.memory is not None:
            audit(self.core.view, self._machine.memory)

    def result(self) -> TimedResult:
        """The results so far."""
        memory, hazards, store = self._machine.memory, self._machine.hazards, self.store
        requests = tuple(self.results[index] for index in sorted(self.results))
        evicted = self._recorder.evicted
        return TimedResult(
            requests=requests,
            makespan_ns=self._makespan_ns,
            d2h=self._link_use(Direction.DEVICE_TO_HOST),
            h2d=self._link_use(Direction.HOST_TO_DEVICE),
            core_events=self._recorder.events,
            byte_checks=memory.checked if memory is not None else 0,
            access_checks=hazards.checked if hazards is not None else 0,
            digest=self._recorder.digest(),
            evicted=tuple(
                (name, evicted.get((Tier.DEVICE, name), 0), evicted.get((Tier.HOST, name), 0))
                for name in self.core.view.config.components
            ),
            reads=LinkUse(store.reads.bytes, store.reads.busy_ns) if store else None,
            writes=LinkUse(store.writes.bytes, store.writes.busy_ns) if store else None,
            gaps=self.engine.gaps,
            stages=self.engine.use if isinstance(self.engine, Pipeline) else None,
        )

    def _link_use(self, way: Direction) -> LinkUse:
        links = self._machine.links
        moved = sum(link.bytes_moved(way) for link in links)
        return LinkUse(moved, max(link.busy_ns(way) for link in links))

    def _ended(self, sequence: Sequence) -> None:
        self.ended += 1
        self._makespan_ns = max(self._makespan_ns, sequence.finish_ns)
        self.results[sequence.job.index] = sequence.result

    def stuck(self) -> StuckError:
        """The error for requests that are left when nothing is scheduled."""
        left = list(self.engine.sequences)
        unanswered = self.controller.unanswered + (self.store.unanswered if self.store else 0)
        return StuckError(
            f"{len(left)} requests are left ({left[:8]}), {unanswered} transfers "
            f"unanswered, and nothing is scheduled; last refusal: {self.engine.last_refusal}"
        )


def _check_sizes(workload: Workload, config: Config) -> None:
    """Raises CallerError when a request can never fit, before anything runs."""
    for job in workload.jobs:
        pages = -(-final_length(job) // config.page_size)
        if pages > config.device_pages[0]:
            raise too_small(job.index, config.components[0], pages, config.device_pages[0])
