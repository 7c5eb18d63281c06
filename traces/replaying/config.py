"""What a replay is: its options, resolved once into pages, bytes, profiles and a core's `Config`;
and the trace that they name. The run and the report read `ReplayConfig` and ask no option again."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from typing import Any

from hicache import registry
from hicache.core.components import residency, settings_for
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.plugins import Shape
from hicache.core.types import Tier
from hicache.models import ModelDescription
from hicache.runtime.config_document import document, settings_names
from hicache.storage.address import open_store, parse, schemes, shown, with_size, without_size
from hicache.storage.base import StorageOptions
from invariants.checker import Level
from sim import engine_profiles, fitted, hardware
from sim.engine.running import PrefetchLimit
from sim.engine.sequence import final_length
from sim.hardware import HardwareProfile
from sim.options import EngineOptions, FleetOptions, RouterOptions, engine_options
from sim.storage.contents import MILLION, Contents, Faulty, Medium, StoreOptions
from sim.storage.stored import StoredContents, context_of, scaled_size
from sim.times import base as times
from sim.times.base import Parallelism, TimeModel
from sim.world import NO_RETENTION, PERIODS, PinnedPrefix, RetentionOptions

from .. import formats
from ..formats.base import Paged, Trace, need_identity
from ..formats.reading import About, Lines
from ..generators import Multiturn, text
from ..terminal import options as read
from ..terminal.streams import print_error
from .options import (
    HARDWARE,
    LIMITS_NS,
    WRITE_POLICY,
    Mode,
    Prefetch,
    ReplayOptions,
    check_read,
    plain,
)
from .sizes import Pools, Sizes, check_fit, memory_of, model_of
from .traffic import LoadSettings, Slo, loaded

# -- the trace

# The workload that is played when no trace is given. The conversations end with 0.8 M tokens. A
# fifth of them fits on the device, and most of the rest on the host. The hit rate of LRU falls
# sharply if the host is a seventh smaller. If it is larger, nothing is computed twice.
BUILTIN = "built-in multiturn"
_WORKLOAD = Multiturn(
    clients=128,
    rounds=12,
    input_tokens=256,
    output_tokens=256,
    system_tokens=1024,
    think_ms=10000,
    start_ms=10000,
    seed=1,
)
_DEVICE_TOKENS = 160_000
_HOST_RATIO = Fraction("3.5")


def opened(options: ReplayOptions) -> tuple[ReplayOptions, Trace]:
    """The options and the trace; if none was named, the built-in one, with its sizes and level of
    checks where none were given."""
    if options.trace is None:
        if options.device_tokens is None and options.device_pages is None:
            options = replace(options, device_tokens=_DEVICE_TOKENS)
        hosts = options.host_ratio, options.host_pages, options.host_bytes
        if all(host is None for host in hosts):
            options = replace(options, host_ratio=_HOST_RATIO)
        options = replace(options, check=options.check or "every")
    return options, loaded(options.load, as_recorded(options))


def as_recorded(options: ReplayOptions) -> Trace:
    """The trace before the options of load change when its requests arrive."""
    if options.trace is None:
        return formats.parse(Lines(BUILTIN, _lines()), about=About(limit=options.limit))
    return options.opened()


def _lines() -> Iterator[bytes]:
    return (line.encode() for line in text("multiturn", _WORKLOAD))


# -- storage

SIMULATED = "sim"


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """What is behind host memory. address: without a size. `sim:` is a store in virtual time, with
    what can go wrong; every other one is a real store, which the replay reads and writes, and takes
    the time of the simulated link for it. options: of the store or of this link; its size is that
    of real pages. workload: a digest of what the numbers of pages stand for; empty for `sim:`.
    """

    address: str
    options: StoreOptions
    policy: str
    limit: PrefetchLimit | None
    workload: str = ""

    def open(
        self, model: ModelDescription, page_size: int, value_bytes: Mapping[str, int], tp: int
    ) -> Contents:
        """What the store has. Raises CallerError for what a person can mend."""
        size, most = self.options.size_bytes, max(value_bytes.values())
        if 0 < size < most:
            raise CallerError(
                f"--storage: size: expected room for a page or state, {most} bytes, found {size}"
            )
        if not self.workload:
            medium = Medium(value_bytes, size)
            faulty = self.options.loss or self.options.lying or self.options.corrupt
            return Faulty(medium, self.options) if faulty else medium
        address = with_size(parse(self.address), scaled_size(size, value_bytes))
        store = open_store(address, StorageOptions(), time.monotonic, print_error)
        context = context_of(model, page_size, "ids", self.workload, tp)
        contents = StoredContents(store, context, model, value_bytes, tp)
        try:
            contents.check_key(shown(address))
        except CallerError:
            contents.close()
            raise
        return contents


def storage_of(options: ReplayOptions, trace: Trace) -> StorageSettings | None:
    """The storage that was asked for; None without one. Raises CallerError."""
    if options.storage is None:
        return None
    place, workload = options.storage, ""
    scheme, _, rest = place.partition(":")
    store = StoreOptions()
    if scheme == SIMULATED:
        store = simulated(rest, options.seed or 0)
    else:
        address = parse(place)
        if address.scheme not in schemes():
            raise registry.unknown("storage", scheme, [SIMULATED, *schemes()])
        address, size = without_size(address)
        store = replace(store, size_bytes=size)
        place, workload = address.text, _workload(options, trace)
    policy = (options.prefetch or Prefetch()).policy
    limit = PrefetchLimit(*LIMITS_NS[policy]) if policy in LIMITS_NS else None
    return StorageSettings(place, store, policy, limit, workload)


def _workload(options: ReplayOptions, trace: Trace) -> str:
    """A digest of everything that says which tokens the number of a block stands for: the
    whole content of the trace, whatever its path and --limit, and how it is read."""
    if options.trace == "-":
        raise CallerError(
            "-: expected a file, whose content names its pages in a store, found standard input; "
            "write it to a file"
        )
    if options.trace is None:
        content = sha256(b"".join(_lines())).hexdigest()
    else:
        content = formats.content_digest(options.trace)
    tokenizer = formats.content_digest(options.tokenizer) if options.tokenizer else ""
    parts = [trace.format, str(trace.block_size), content, tokenizer]
    parts += [item for item in (options.columns, options.rows) if item is not None]
    return sha256("\n".join(parts).encode()).hexdigest()


def simulated(text: str, seed: int) -> StoreOptions:
    """The settings in an address such as `read=6GB/s,write=3GB/s,latency=200us,loss=0.01`."""
    result: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in _READERS or name in result:
            raise CallerError(
                f"--storage sim: expected some of {', '.join(_READERS)}, each once and with "
                f"=VALUE, found {part[:40]!a}{registry.closest(name, [*_READERS])}"
            )
        try:
            result[name] = _READERS[name][1](value)
        except ValueError as error:
            raise CallerError(f"--storage sim:{name}: {error}") from None
    return StoreOptions(seed=seed, **{_READERS[name][0]: number for name, number in result.items()})


def _share(text: str) -> int:
    share = read.ratio(text)
    if share > 1:
        raise ValueError(f"expected a share from 0 to 1, found {text!r}")
    return int(share * MILLION)


_READERS: dict[str, tuple[str, Callable[[str], int]]] = {
    "read": ("read_bytes_per_s", read.bandwidth),
    "write": ("write_bytes_per_s", read.bandwidth),
    "latency": ("latency_ns", read.duration_ns),
    "size": ("size_bytes", read.at_least(1, read.byte_size)),
    **{name: (name, _share) for name in ("loss", "lying", "corrupt", "slow")},
    **{name: (f"{name}_ns", read.duration_ns) for name in ("dead_at", "hangs_at", "back_at")},
}


# -- the configuration


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Everything that determines the outcome of a replay. `pools` records the rule of each size.

    storage: None without one. flushed: the tiers that are emptied between rounds. fleet: None for
    one replica without a router.
    """

    mode: Mode
    check: Level
    limit: int
    model: ModelDescription
    hardware: HardwareProfile
    parallelism: Parallelism
    times: str
    speed: Fraction
    core: Config
    engine: EngineOptions
    pools: Pools
    load: LoadSettings
    slo: Slo | None = None
    storage: StorageSettings | None = None
    flushed: tuple[Tier, ...] = ()
    fleet: FleetOptions | None = None
    retention: RetentionOptions = NO_RETENTION

    @property
    def page_ranks(self) -> int:
        """Accelerators that share a page."""
        return self.parallelism.attention_tp

    @property
    def time_model(self) -> TimeModel:
        """The durations of this run's passes."""
        engine = self.engine.profile
        return times.make(self.times, self.model, self.hardware, self.parallelism, engine)

    @property
    def value_bytes(self) -> dict[str, int]:
        """Bytes in storage of one page or state of each component, of all ranks together. A pool
        that is identical on all ranks is stored once."""
        size, tp, dcp = self.core.page_size, self.page_ranks, self.parallelism.dcp
        return {
            name: sum(
                pool.page_bytes(size, tp)
                if pool.replicated
                else pool.page_bytes(size, tp, dcp) * tp
                for pool in self.model.pools_of(name)
            )
            for name in self.core.components
        }

    @property
    def page_bytes(self) -> tuple[int, ...]:
        """Bytes of one page or state of each component, on one rank of each pipeline stage
        together."""
        return self._page_bytes(self.model)

    @property
    def rank_page_bytes(self) -> tuple[int, ...]:
        """The same on a rank of the stage that has most of the component."""
        stages = self.model.stages(self.parallelism.pp)
        return tuple(map(max, zip(*map(self._page_bytes, stages), strict=True)))

    def _page_bytes(self, model: ModelDescription) -> tuple[int, ...]:
        size, tp, dcp = self.core.page_size, self.page_ranks, self.parallelism.dcp
        return tuple(model.bytes_per_page(name, size, tp, dcp) for name in self.core.components)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights on a rank of the pipeline stage that has most."""
        return times.rank_weight_bytes(self.model, self.parallelism)

    def as_options(self) -> dict[str, object]:
        """Every resolved option, by its name on the command line."""
        core, engine, ranks, load = self.core, self.engine, self.parallelism, self.load
        result: dict[str, object] = {
            "mode": self.mode,
            "tp": ranks.tp,
            "pp": ranks.pp,
            "slo": plain(self.slo),
            "model": self.model.name,
            "weight_dtype": self.model.weight_dtype,
            "weight_bytes_per_rank": self.weight_bytes,
            "weight_bytes_total": self.model.weight_bytes,
            "kv_dtype": self.model.kv_dtype,
            "hardware": self.hardware.name,
            "ep": ranks.ep,
            "attention_dp": ranks.attention_dp,
            "dcp": ranks.dcp,
            "engine": engine.profile.label,
            "times": self.times,
            "page_size": core.page_size,
            "device_pages": core.device_pages[0],
            "device_tokens": core.device_pages[0] * core.page_size,
            "host_pages": core.host_pages[0],
            "host_tokens": core.host_pages[0] * core.page_size,
            "components": list(core.components),
            "host_link_bytes_per_s_per_rank": self.hardware.reached_link_bytes_per_s,
            "write_policy": core.write_policy,
            "exclusive": bool(core.exchange_pages),
            "eviction_policy": core.eviction_policy,
            "scheduler": engine.order,
            "token_budget": engine.token_budget,
            "max_running": engine.max_running,
            "check": self.check,
            "speed": float(self.speed),
            "limit": self.limit or None,
            "arrivals": str(load.arrivals),
            "request_rate": None if load.request_rate is None else float(load.request_rate),
            "concurrency": load.concurrency or None,
            "closed_loop": load.closed_loop,
            "scale_sessions": float(load.scale_sessions),
            "spread": load.spread,
            "seed": load.seed,
        }
        written = document(core)
        each = zip(core.components, core.device_pages, core.host_pages, strict=True)
        for name, device, host in each:
            result |= {key: written[key] for key in settings_names(name)}
            kind, unit = residency(name), 1 if residency(name) == "state" else core.page_size
            if kind in ("window", "state"):
                what = "states" if kind == "state" else "tokens"
                result |= {f"{name}_{what}": device * unit, f"{name}_host_{what}": host * unit}
        if self.storage is not None:
            size = self.storage.options.size_bytes or None
            result |= {"storage": self.storage.address, "storage_size": size}
            result["prefetch"] = self.storage.policy
            result["prefetch_threshold"] = core.prefetch_threshold_tokens
        if self.storage is not None or self.flushed:
            for tier in (Tier.HOST, Tier.DEVICE):
                result[f"flush_{tier.name.lower()}_every_round"] = tier in self.flushed
        if self.fleet is not None and self.fleet.decode:
            result["prefill_replicas"] = self.fleet.replicas
            result["decode_replicas"] = self.fleet.decode
        elif self.fleet is not None:
            result["replicas"] = self.fleet.replicas
        if self.fleet is not None:
            result["router"] = self.fleet.router.name.replace("_", "-")
        if self.retention.ttl_ns:
            result["ttl_s"] = self.retention.ttl_ns / 1e9
        if self.retention.pins:
            result["pins"] = [
                {"request": pin.place, "pages": pin.pages, "tier": pin.tier.name.lower()}
                for pin in self.retention.pins
            ]
        return result


def resolve(options: ReplayOptions, trace: Trace) -> tuple[ReplayConfig, Paged]:
    """The configuration for this trace, and its pages. Raises CallerError where sizes do not fit,
    and for an option that the run would not read."""
    model, ranks = model_of(options), options.parallelism
    times.check_ranks(model, ranks)
    page_size = options.page_size or model.page_size
    if options.mode == "hits":
        need_identity(trace, "--mode hits")
    _check_page_size(model, page_size, ranks.dcp)
    paged = trace.paged(page_size)
    profile = hardware.get(options.hardware or HARDWARE)
    engine = _engine(options, model)
    pools = Sizes(options, model, memory_of(profile), page_size, engine).pools(trace)
    named = options.times or times.DEFAULT
    if options.mode == "timed":  # raises if the ranks cannot hold the weights
        times.make(named, model, profile, ranks, engine.profile)
    check_read(options, pools.components, bool(pools.host[0]))
    storage = storage_of(options, trace)
    retention = _retention(options, trace, paged, pools)
    core = _core(options, page_size, pools, storage, retention)
    check_fit(trace, paged, options, pools)
    config = ReplayConfig(
        mode=options.mode,
        check=options.check or "sampled",
        limit=options.limit,
        model=model,
        hardware=profile,
        parallelism=ranks,
        times=named,
        speed=options.speed or Fraction(1),
        core=core,
        engine=engine,
        pools=pools,
        load=options.load,
        slo=options.slo,
        storage=storage,
        flushed=options.flush_every_round or (),
        fleet=_fleet(options, pools.components),
        retention=retention,
    )
    return config, paged


def _core(
    options: ReplayOptions,
    page_size: int,
    pools: Pools,
    storage: StorageSettings | None,
    retention: RetentionOptions,
) -> Config:
    more: dict[str, Any] = {"ttl_periods": PERIODS} if retention.ttl_ns else {}
    if storage is not None:
        more["storage"], more["prefetch_policy"] = True, storage.policy
        more["prefetch_threshold_tokens"] = (options.prefetch or Prefetch()).tokens
    core = Config(
        page_size=page_size,
        device_pages=pools.device,
        host_pages=pools.host,
        components=pools.components,
        exchange_pages=pools.exchange,
        passes=options.pp if options.mode == "timed" else 1,
        settings=settings_for(pools.components, Shape(pools.window, pools.interval)),
        branch_states=pools.branch_states,
        write_policy=options.write_policy or WRITE_POLICY,
        eviction_policy=options.eviction,
        **more,
    )
    components = [registry.load(registry.COMPONENTS, name)(core) for name in core.components]
    for component, pages in zip(components, core.device_pages, strict=True):
        if pages < component.least_pages:
            raise CallerError(
                f"device pool of {component.name}: expected at least {component.least_pages} pages "
                f"of {page_size} tokens, which any request needs, found {pages}; enlarge it"
            )
    bounds: dict[str, Any] = {}  # what the pins need
    for tier, name in ((Tier.DEVICE, "pin_pages"), (Tier.HOST, "pin_host_pages")):
        pins = [pin for pin in retention.pins if pin.tier == tier]
        if pins:
            bounds[name] = tuple(
                sum(min(pin.pages, item.window_pages) if item.positional else 1 for pin in pins)
                for item in components
            )
    return replace(core, **bounds)


def _engine(options: ReplayOptions, model: ModelDescription) -> EngineOptions:
    """The settings of the engine: what was given, and the engine's own defaults."""
    named = options.engine or engine_profiles.DEFAULT
    profile = engine_profiles.get(named)
    if not engine_profiles.is_path(named):  # a user's own says what it means
        profile = fitted.engine(profile, options.hardware or HARDWARE, model.name)
    groups = options.parallelism.attention_dp
    engine = engine_options(profile, groups)
    return replace(engine, order=options.scheduler or engine.order)


def _check_page_size(model: ModelDescription, page_size: int, dcp: int) -> None:
    """Raises CallerError, with a size that works, for one that a pool of the model cannot have, or
    that the ranks of a context parallel group cannot divide."""
    multiple = dcp * math.lcm(*(pool.compression for pool in model.pools))
    if page_size % multiple:
        who = f"{dcp} ranks divide" if dcp > 1 else f"share a row of {model.name}"
        raise CallerError(
            f"--page-size: expected a multiple of {multiple}, the tokens that {who}, found "
            f"{page_size}; give {-(-model.page_size // multiple) * multiple}"
        )


def _retention(
    options: ReplayOptions, trace: Trace, paged: Paged, pools: Pools
) -> RetentionOptions:
    """Pinned prefixes and the time to live. Raises CallerError for a pin of a prefix that the trace
    does not have or that leaves too little room, and for a time to live without times."""
    if options.ttl and options.mode == "hits" and (trace.jobs.afters >= 0).any():
        raise CallerError(
            "--ttl: expected a time of arrival for every request in hits mode, found some that "
            "follow others; use --mode timed"
        )
    result, pinned = [], Counter[Tier]()
    for pin in options.pin or ():
        if pin.request >= len(trace.jobs):
            raise CallerError(
                f"--pin: expected a request from 0 to {len(trace.jobs) - 1}, found {pin.request}"
            )
        most = paged.prompt_key(trace.jobs[pin.request]).pages
        pages = pin.tokens // paged.page_size
        if not 0 < pages <= most:
            raise CallerError(
                f"--pin {pin}: expected {paged.page_size} to {most * paged.page_size} tokens (the "
                f"whole pages of that prompt), found {pin.tokens}"
            )
        result.append(PinnedPrefix(pin.request, pages, pin.tier))
        pinned[pin.tier] += pages
    largest = max(
        (-(-final_length(job) // paged.page_size) for job in paged.jobs if result), default=0
    )
    for tier, free_pages in ((Tier.HOST, pools.host[0]), (Tier.DEVICE, pools.device[0] - largest)):
        if pinned[tier] > max(0, free_pages):
            raise CallerError(
                f"--pin: expected at most {max(0, free_pages)} pages on {tier.name.lower()}, "
                f"beside the largest request there, found {pinned[tier]}; pin less, or enlarge "
                "that pool"
            )
    return RetentionOptions(options.ttl or 0, tuple(result))


def _fleet(options: ReplayOptions, components: Sequence[str]) -> FleetOptions | None:
    """None for one replica without a router. Raises CallerError for what replicas that decode do
    not have."""
    members = options.replicas
    if members is None:
        return None
    prefills, decodes = (members, 0) if isinstance(members, int) else members
    for wrong, expected, result in (
        (options.mode == "hits", "--mode timed", "hits mode, which has no clock"),
        (options.pp > 1, "--pp 1", options.pp),
        (len(components) > 1, "full attention alone", ",".join(components)),
        (options.storage is not None, "no --storage", "one"),
    ):
        if wrong and decodes:
            raise CallerError(
                f"--replicas {members}: expected {expected}, found {result}; or give one number"
            )
    router = RouterOptions()
    if options.router:
        router = RouterOptions(options.router.replace("-", "_"))
    return FleetOptions(prefills, decodes, router)
