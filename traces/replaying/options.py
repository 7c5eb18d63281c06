# ruff: noqa: RUF009  (options are made by partial functions)
"""The options of `hicache replay` as one frozen record, which is also their declaration.

Each field is an option with its row (see terminal/options). An option without effect is refused in
one line that says what would read it: its row names what it needs, and here is when a run has that.
Only options that were given count, so their defaults are None in the record.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple, Self, get_args

from hicache import models, registry
from hicache.core.components import known, residency
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from invariants.checker import Level
from sim import engine_profiles, hardware, routers
from sim import hardware as measured
from sim.options import ROUTER
from sim.times.base import DEFAULT as DEFAULT_TIMES
from sim.times.base import Parallelism

from ..formats import FORMATS, open_trace
from ..formats.base import MAX_BLOCK_TOKENS, Trace, sampled
from ..formats.reading import TEXT_BLOCK, About
from ..formats.tables import parse_columns
from ..plugins import files, plugin, spelled_out
from ..terminal import options as read
from ..terminal.options import Names, Option, OptionRecord, flag, option, rows
from ..terminal.streams import command_line
from .traffic import MODELS, MOST_SCALE, SPREAD, Arrivals, LoadSettings, Slo
from .traffic import NAMES as LIMITS

Mode = Literal["timed", "hits"]
CHECKS: tuple[Level, ...] = get_args(Level)
COMPONENTS = known()
BACKBONE = COMPONENTS[0]
MODEL = "llama-3.1-8b"
HARDWARE = "h100"
WRITE_POLICY = "write_through"
OWN_STATES = 3  # of a running request
PREFIX_TOKENS = 4096  # of a cached prefix: one window or state for each
_PREFETCHING = registry.names(registry.PREFETCH_POLICIES)
PREFETCH = "wait_complete"
PREFETCH_THRESHOLD_TOKENS = 256
# SGLang's for its policy `timeout`: 1 s, and 0.25 s for 1,024 tokens. `wait_complete` has no limit
# there; here it has one, so that a store that hangs costs a request no more than that.
LIMITS_NS = {"timeout": (1_000_000_000, 244_140), "wait_complete": (10_000_000_000, 2_441_406)}
TRACE_HELP = "a file, plain, gzip or zstd, or a folder of files; - reads stdin"


_NO_CLOCK = (
    "hits mode, which serves one request at a time without a clock",
    "use --mode timed",
)


class Need(Enum):
    """What reads an option: what is expected, what a run without it has, and what to do."""

    TRACE = "a TRACE to read", "none", "name one"
    TIMED = "--mode timed", *_NO_CLOCK
    # or states, which an engine keeps; or a window pool, as large as a pass; or drawn sessions
    ENGINE = "--mode timed", *_NO_CLOCK, "states"
    CHANCE = "--mode timed", *_NO_CLOCK, "sessions"
    HOST = "a host pool", "none", "give --host-ratio, --host-pages or --host-bytes"
    ARRIVALS = "arrivals at their times", "--concurrency", "leave that out"
    ROUNDS = "rounds that nothing else delays", "--concurrency", "leave that out"
    RATE = "one rate", "--request-rate", "give that alone"
    STORE = "a store", "none", "name one with --storage"
    ALONE = "one replica", "several", "leave out the replicas"
    REPLICAS = "replicas to choose from", "one", "give --replicas"


# -- parsers of values


class Pin(NamedTuple):
    """The first tokens of a request's prompt. str() is what the user writes."""

    request: int
    tokens: int
    tier: Tier = Tier.DEVICE

    def __str__(self) -> str:
        return f"{self.request}:{self.tokens}{'@host' if self.tier == Tier.HOST else ''}"


def _pins(text: str) -> tuple[Pin, ...]:
    pins = []
    for part in text.split(","):
        prefix, at, tier = part.partition("@")
        request, colon, tokens = prefix.partition(":")
        if not colon or (at and tier not in ("host", "device")):
            raise ValueError(
                f"expected REQUEST:TOKENS, such as 17:4096 or 17:4096@host, found {part!r}"
            )
        where = Tier.HOST if tier == "host" else Tier.DEVICE
        pins.append(Pin(read.size(request), read.at_least(1)(tokens), where))
    return tuple(pins)


class Prefetch(NamedTuple):
    """policy: when to wait. tokens: the fewest to fetch."""

    policy: str = PREFETCH
    tokens: int = PREFETCH_THRESHOLD_TOKENS

    def __str__(self) -> str:
        return f"{self.policy}:{self.tokens}"


def _prefetch(text: str) -> Prefetch:
    policy, colon, tokens = text.partition(":")
    least = read.size(tokens) if colon else PREFETCH_THRESHOLD_TOKENS
    return Prefetch(read.choice(_PREFETCHING)(policy), least)


class Divided(NamedTuple):
    """Replicas that only prefill, and replicas that only decode."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        return f"{self.prefill}:{self.decode}"


def _replicas(text: str) -> int | Divided:
    counts = [*map(read.between(1, 1024), text.split(":", 1))]
    return Divided(*counts) if len(counts) > 1 else counts[0]


def _tiers(text: str) -> tuple[Tier, ...]:
    names = [*map(read.choice(["host", "device"]), text.split(","))]
    return tuple(tier for tier in (Tier.HOST, Tier.DEVICE) if tier.name.lower() in names)


def _columns(text: str) -> str:
    parse_columns(text)
    return text


def _model(text: str) -> str:
    return text if models.is_path(text) else text.replace("_", "-")


def _hardware(text: str) -> str:
    return text if measured.is_path(text) else read.choice(hardware.names())(text)


# Parsers of a name, or of the path of a file, which is read later.
_MODELS = Names(_model, models.names)
_HARDWARE = Names(_hardware, hardware.names)
_ENGINES = Names(read.name, engine_profiles.names)


class Pool(NamedTuple):
    """A component, and the tokens or states of its pools, None where they are not given."""

    name: str
    device: int | None = None
    host: int | None = None

    def __str__(self) -> str:
        sizes = [str(size) for size in self[1:] if size is not None]
        return "=".join([self.name, *[":".join(sizes)] * bool(sizes)])


def _components(text: str) -> tuple[Pool, ...]:
    """Parses a list such as full,mamba=50:7; returns it in the project's order."""
    result = {}
    names = []
    for part in text.split(","):
        name, equals, sizes = part.strip().partition("=")
        names.append(name)
        numbers = [*map(read.at_least(1), sizes.split(":"))] if equals else []
        most = {"path": 0, "window": 1, "state": 2}
        if name in COMPONENTS and len(numbers) > most[residency(name)]:
            raise ValueError(f"expected swa=TOKENS or mamba=STATES[:ON_HOST], found {part!r}")
        result[name] = Pool(name, *numbers[:2])
    if not {BACKBONE} <= {*names} <= {*COMPONENTS} or len(set(names)) < len(names):
        raise ValueError(
            f"expected {BACKBONE}, and each of {', '.join(COMPONENTS[1:])} at most once, "
            f"separated by commas, found {text!r}"
        )
    return tuple(result[name] for name in COMPONENTS if name in names)


def _slo(text: str) -> Slo:
    """Reads `ttft=2s,tpot=50ms`."""
    limits: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in LIMITS or f"{name}_ns" in limits:
            raise ValueError(
                f"expected limits such as ttft=2s,tpot=50ms, each of {', '.join(LIMITS)} at most "
                f"once, found {text!r}"
            )
        limits[f"{name}_ns"] = read.duration_ns(value)
        if not limits[f"{name}_ns"]:
            raise ValueError(f"{name}: expected a time above 0, found {value!r}")
    return Slo(**limits)


_KNOWN = [*MODELS, SPREAD]


def _arrivals(text: str) -> Arrivals:
    """Reads `gamma:cv=4`."""
    name, _, arguments = text.partition(":")
    name = read.choice(_KNOWN)(name)
    if not arguments:
        return Arrivals(name)
    key, equals, value = arguments.partition("=")
    if name == SPREAD or MODELS[name].cv is None or key != "cv" or not equals:
        raise ValueError(f"expected gamma:cv=2, or the name of a model, found {text!r}")
    return Arrivals(name, float(read.ratio(value)))


# -- the options

usual = partial(option, common=True)
of_file = partial(option, one_value=True, needs=(Need.TRACE,))
written = partial(option, output=True)
timed = partial(option, needs=(Need.TIMED,))
stored = partial(option, needs=(Need.STORE,))
_ROUTING = list(routers.ROUTERS)
_ARRIVING = (Need.TIMED, Need.ARRIVALS)


@dataclass(frozen=True)
class TraceOptions(OptionRecord):
    """A trace, how much of it is read, and how, where its file leaves that open. limit: requests, 0
    for all."""

    HEADING = "how the trace is read"

    trace: str = usual(TRACE_HELP, read.name, "TRACE", positional=True, file=str)
    limit: int = usual("only the first N requests", *read.COUNT, default=0, one_value=True)
    format: str | None = of_file(
        "its format, see `hicache convert --formats`", read.choice(("auto", *sorted(FORMATS)))
    )
    block_size: int | None = of_file(
        "tokens of a block of its ids", read.between(1, MAX_BLOCK_TOKENS), "TOKENS"
    )
    tokenizer: str | None = of_file("tokenizer.json, for text", *read.FILE, file=str)
    columns: str | None = of_file(
        "of a log of your own: columns or expressions",
        _columns,
        "ROLE=NAME,...",
        commas=True,
    )
    rows: str | None = of_file("of one JSON document: where its rows are", read.name, "PATH")

    @property
    def text_block(self) -> int:
        """Tokens of a block of text, where none are given: no more than a page has."""
        return min(TEXT_BLOCK, getattr(self, "page_size", None) or TEXT_BLOCK)

    def opened(self) -> Trace:
        """The trace that the options name, read as they say."""
        log = self.columns, self.rows
        about = About(self.block_size, self.tokenizer, *log, self.limit, self.text_block)
        return open_trace(self.trace, self.format or "auto", about)


@dataclass(frozen=True)
class ReplayedTrace(TraceOptions):
    """The trace of a replay; None for the built-in one."""

    trace: str | None = usual(  # type: ignore[assignment]
        TRACE_HELP, read.name, "TRACE", positional=True, optional=True, file=str
    )
    sample: Fraction | None = usual(
        "only this part of it: whole sessions", read.part, "PART", needs=(Need.TRACE,)
    )

    def opened(self) -> Trace:
        """The trace before a load changes when its requests arrive."""
        trace = super().opened()
        return trace if self.sample is None else sampled(trace, self.sample)


@dataclass(frozen=True)
class RunOptions(OptionRecord):
    HEADING = "the run"

    mode: Mode = usual(
        "timed, or hits: one request at a time", read.choice(get_args(Mode)), default="timed"
    )
    check: Level | None = usual(
        f"invariants: {', '.join(CHECKS)} (default: sampled)", read.choice(CHECKS), one_value=True
    )
    seed: int | None = option(
        "of arrivals, sessions and jitter (default: 0)", *read.COUNT_OR_0, needs=(Need.CHANCE,)
    )


@dataclass(frozen=True)
class OutputOptions(OptionRecord):
    """What `hicache replay` prints and writes; no option of a point of a sweep."""

    HEADING = "what is printed and written"

    verbose: bool = written("print everything", default=False, common=True, short="-v")
    config: str | None = written("more options: TOML, or JSON of a replay", *read.FILE, file=str)
    json: str | None = written("the results; - is stdout", *read.OUTPUT, common=True)
    html: str | None = written("the report; - is stdout", *read.OUTPUT, common=True)
    why: int | None = written("only what is known of request N", *read.COUNT_OR_0, common=True)
    requests: str | None = written("a line of JSON for each request", *read.OUTPUT)
    timeline: str | None = written(
        "what ran when, for ui.perfetto.dev", *read.OUTPUT, needs=(Need.TIMED,)
    )


@dataclass(frozen=True)
class EngineOptions(OptionRecord):
    HEADING = "model, hardware and engine (sizes in both modes, times in timed)"

    model: str | None = usual(
        f"a name of `hicache models`, tiny, or a JSON file (default: {MODEL})",
        _MODELS,
        file=lambda text: text if models.is_path(text) else None,
    )
    kv_dtype: str | None = option(", ".join(models.KV_DTYPES), read.choice(models.KV_DTYPES))
    hardware: str | None = usual(
        lambda: f"{', '.join(hardware.names())}, or a file of calibrate (default: {HARDWARE})",
        _HARDWARE,
        file=lambda text: text if measured.is_path(text) else None,
    )
    tp: int = usual("accelerators that share the model", *read.COUNT, default=1)
    pp: int = option("pipeline stages, each on --tp accelerators", *read.COUNT, default=1)
    ep: int | None = timed("accelerators that share the experts, a divisor of --tp", *read.COUNT)
    attention_dp: int | None = option("groups that attend to requests of their own", *read.COUNT)
    dcp: int | None = option("ranks that divide the tokens of a request", *read.COUNT)
    engine: str | None = usual(
        f"{', '.join(engine_profiles.names())}, or a JSON file; with limits of your own: "
        "'vllm?max_running=64&token_budget=4096'",
        _ENGINES,
        "NAME[@VERSION]",
        needs=(Need.ENGINE,),
        file=lambda text: engine_profiles.path_of(text) if engine_profiles.is_path(text) else None,
    )
    times: str | None = timed(
        lambda: f"time model: {spelled_out(registry.TIMES)} (default: {DEFAULT_TIMES})",
        plugin(registry.TIMES),
    )
    scheduler: str | None = timed(
        lambda: f"who is admitted next: {spelled_out(registry.SCHEDULERS)}",
        plugin(registry.SCHEDULERS),
    )

    @property
    def parallelism(self) -> Parallelism:
        """How the ranks share the model. Raises CallerError for numbers that contradict."""
        return Parallelism(self.tp, self.pp, self.ep or 1, self.attention_dp or 1, self.dcp or 1)


@dataclass(frozen=True)
class HostOptions(OptionRecord):
    """The size of one host pool."""

    HEADING = "host memory"

    host_ratio: Fraction | None = usual(
        "host pages for each device page", read.ratio, "R", excludes="host"
    )
    host_bytes: int | None = usual(
        "of all GPUs together, such as 512GB; 0 for none", read.byte_size, "B", excludes="host"
    )
    host_pages: int | None = option("host pool in pages", *read.COUNT_OR_0, excludes="host")


@dataclass(frozen=True)
class CacheOptions(OptionRecord):
    """ttl: nanoseconds."""

    HEADING = "cache"

    page_size: int | None = usual("tokens per page (default: the model's own)", *read.TOKENS)
    device_tokens: int | None = usual(
        "device pool (default: 90% of the memory less the weights)", *read.COUNT, excludes="device"
    )
    device_pages: int | None = option("the same in pages", *read.COUNT, excludes="device")
    write_policy: str | None = usual(
        lambda: f"copies to host: {spelled_out(registry.WRITE_POLICIES)} (default: {WRITE_POLICY})",
        plugin(registry.WRITE_POLICIES),
        needs=(Need.HOST,),
    )
    exclusive: bool = option("a page that was loaded gives up its host copy", default=False)
    eviction: str = usual(
        lambda: f"eviction order: {spelled_out(registry.EVICTION_POLICIES)}",
        plugin(registry.EVICTION_POLICIES),
        default="lru",
    )
    ttl: int | None = option(
        "copies go that were not used so long", read.duration_ns, "TIME", needs=(Need.ALONE,)
    )
    pin: tuple[Pin, ...] | None = option(
        "the first tokens of a prompt stay, such as 17:4096,18:512@host",
        _pins,
        commas=True,
        needs=(Need.ALONE,),
    )


@dataclass(frozen=True)
class ComponentOptions(OptionRecord):
    HEADING = "components"

    components: tuple[Pool, ...] | None = option(
        f"{', '.join(COMPONENTS)} (default: the model's), with pools of tokens or states on "
        "device, and states on host: full,swa=64K,mamba=50:100",
        _components,
        "LIST",
        commas=True,
    )

    def pool_of(self, name: str) -> Pool:
        """What was said of a component."""
        return next((item for item in self.components or () if item.name == name), Pool(name))


@dataclass(frozen=True)
class LoadOptions(OptionRecord):
    """request_rate: requests per second."""

    HEADING = "load (timed mode; docs/replay.md)"

    speed: Fraction | None = usual(
        "X times as fast", read.positive_ratio, "X", needs=(Need.TIMED, Need.RATE)
    )
    scale_sessions: Fraction | None = usual(
        "X times the sessions: a random part, or copies as well",
        lambda text: read.positive_ratio(text, MOST_SCALE),
        "X",
        needs=(Need.TRACE, Need.RATE, Need.ARRIVALS),
    )
    concurrency: int | None = timed("N requests in flight, at no times", *read.COUNT, common=True)
    slo: Slo | None = timed(
        "limits, such as ttft=2s,tpot=50ms,itl=1s,e2e=9s", _slo, "LIST", common=True, commas=True
    )
    arrivals: Arrivals | None = option(
        f"{', '.join(_KNOWN)}; gamma:cv=4 is bursty; spread: those of one instant until the next",
        _arrivals,
        "MODEL",
        commas=True,
        needs=_ARRIVING,
    )
    request_rate: Fraction | None = option(
        "first turns a second", read.positive_ratio, "N", needs=_ARRIVING
    )
    closed_loop: bool | None = timed("a turn of a session waits for the end of the one before")


@dataclass(frozen=True)
class StorageOptions(OptionRecord):
    HEADING = "storage, the tier behind host memory"

    storage: str | None = usual(
        "sim:read=6GB/s,latency=200us,size=2TB, or a real one, such as file:DIR?size=2TB",
        read.name,
        "ADDRESS",
        commas=True,
        needs=(Need.HOST,),
    )
    prefetch: Prefetch | None = stored(
        f"when to wait: {', '.join(_PREFETCHING)}; and the fewest tokens to fetch (default: "
        f"{PREFETCH}:{PREFETCH_THRESHOLD_TOKENS})",
        Names(_prefetch, lambda: _PREFETCHING),
        "POLICY[:TOKENS]",
    )
    flush_every_round: tuple[Tier, ...] | None = option(
        "empty these tiers between rounds: host, device",
        _tiers,
        "TIER,...",
        commas=True,
        needs=(Need.ROUNDS, Need.ALONE),
    )


@dataclass(frozen=True)
class FleetOptions(OptionRecord):
    HEADING = "several replicas, each with its own cache"

    replicas: int | Divided | None = option(
        "replicas behind a router, or 2:1 for those that prefill and those that decode",
        _replicas,
        "N[:N]",
    )
    router: str | None = option(
        f"{', '.join(_ROUTING)} (default: {ROUTER.replace('_', '-')})",
        read.choice(_ROUTING),
        needs=(Need.REPLICAS,),
    )


# the fields of the last class come first
@dataclass(frozen=True)
class ReplayOptions(
    OutputOptions,
    FleetOptions,
    StorageOptions,
    ComponentOptions,
    LoadOptions,
    HostOptions,
    CacheOptions,
    EngineOptions,
    RunOptions,
    ReplayedTrace,
):
    """None means not given: the value is then a default, or follows from the model, the hardware or
    the trace. So an option that the run would ignore can be told from its default (see Unread).
    texts: of the options that were given, by name."""

    texts: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @classmethod
    def made(cls, values: dict[str, Any], texts: dict[str, str]) -> Self:
        return cls(**values, texts=tuple(texts.items()))

    @property
    def load(self) -> LoadSettings:
        spread = self.arrivals is not None and self.arrivals.name == SPREAD
        return LoadSettings(
            timed=self.mode == "timed",
            arrivals=Arrivals() if spread else self.arrivals or Arrivals(),
            request_rate=self.request_rate,
            concurrency=self.concurrency or 0,
            closed_loop=bool(self.closed_loop),
            spread=spread,
            scale_sessions=self.scale_sessions or Fraction(1),
            seed=self.seed or 0,
        )

    @property
    def repeat(self) -> dict[str, str | bool]:
        """What was given, but the trace and what is printed or written, as `--config` reads it."""
        texts = dict(self.texts)
        return {
            option.flag.removeprefix("--"): option.parse is None or texts[option.name]
            for option in OPTIONS
            if option.name in texts and not (option.output or option.positional)
        }

    @property
    def command(self) -> str:
        """The `hicache replay` with what was given."""
        words = ["hicache", "replay", *([self.trace] if self.trace else [])]
        for name, text in self.repeat.items():
            words += [f"--{name}", *([text] if isinstance(text, str) else [])]
        return command_line(words)

    def without(self, name: str) -> Self:
        """As if this option was not given."""
        default = next(option.default for option in OPTIONS if option.name == name)
        texts = tuple(pair for pair in self.texts if pair[0] != name)
        return replace(self, texts=texts, **{name: default})

    @property
    def files(self) -> dict[str, str]:
        """The files that the options name, by option."""
        named = {}
        for declared in OPTIONS:
            value = getattr(self, declared.name)
            path = declared.file(value) if declared.file and value is not None else None
            if path is not None:
                named[declared.name] = path
        return named

    @property
    def inputs(self) -> dict[str, str]:
        """The files that are read, which no output may replace."""
        return {**self.files, **files()}

    @property
    def plugins(self) -> list[tuple[str, str]]:
        """The policies, schedulers and time models that the options name, with their folders."""
        parsers = [(option.name, option.parse) for option in OPTIONS]
        return [
            (parse.package, value)
            for name, parse in parsers
            if isinstance(parse, Names) and parse.package
            if (value := getattr(self, name)) is not None
        ]


OPTIONS: list[Option] = rows(ReplayOptions)
OUTPUTS = tuple(option.name for option in OPTIONS if option.output)
HOST_SIZES = tuple(row.name for row in rows(HostOptions))


def that_need(need: Need) -> tuple[str, ...]:
    """The options that only a run with this reads."""
    return tuple(option.name for option in OPTIONS if need in option.needs)


def plain(value: object) -> object:
    """A value of an option as a JSON value."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else str(value)
    return value if isinstance(value, int | float | str | None) else str(value)


# -- options without effect


class Unread(CallerError):
    """An option was given that the run would not read. field: its name in ReplayOptions."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def check_read(options: ReplayOptions, components: Sequence[str], has_host: bool) -> None:
    """Raises CallerError for an option that was given and that no part of the run reads."""
    hits = options.mode == "hits"
    several = options.replicas is not None
    kinds = {name: residency(name) for name in components}
    # in hits mode, too, a window pool may follow from the tokens of a pass
    windows = [name for name, kind in kinds.items() if kind == "window"]
    sized = all(options.pool_of(name).device is not None for name in windows)
    lacking = {
        Need.TRACE: options.trace is None,
        Need.TIMED: hits,
        Need.ENGINE: hits and sized and "state" not in kinds.values(),
        Need.CHANCE: hits and options.scale_sessions in (None, 1),
        Need.HOST: not has_host,
        Need.ARRIVALS: options.concurrency is not None,
        Need.ROUNDS: options.concurrency is not None,
        Need.RATE: options.request_rate is not None,
        Need.STORE: options.storage is None,
        Need.ALONE: several,
        Need.REPLICAS: not several,
    }
    if Tier.HOST in (options.flush_every_round or ()) and not has_host:
        text = "--flush-every-round host: expected a host pool, found none; leave it out"
        raise Unread(text, "flush_every_round")
    for need in (need for need, lacks in lacking.items() if lacks):
        expected, result, do, *_ = need.value
        for name in that_need(need):
            if getattr(options, name) is None:
                continue
            text = f"{flag(name)}: expected {expected}, found {result}; {do}"
            text += f", or leave out {flag(name)}"
            # a point of a sweep with several replicas is not the same with the option left out
            raise CallerError(text) if need == Need.ALONE else Unread(text, name)
