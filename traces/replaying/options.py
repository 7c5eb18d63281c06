"""The options of `hicache replay` as one frozen record, which is also their declaration.

Each field is an option with its row (see terminal/options). An option without effect is refused in
one line that says what would read it: its row names what it needs, and here is when a run has that.
Only options that were given count, so their defaults are None in the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from typing import Self

from hicache import models, registry
from hicache.core.components.base import residency
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from invariants.watch import Level
from sim import engine_profiles
from sim.fleet.options import FleetOptions as PlainFleet
from sim.hardware import measured
from sim.hardware import profile as hardware
from sim.options import EngineOptions as PlainEngine
from sim.times.base import DEFAULT as DEFAULT_TIMES
from sim.times.base import Parallelism

from ..formats import FORMATS, open_trace
from ..formats.base import MAX_BLOCK_TOKENS, LogOptions, Trace
from ..formats.tables import parse_columns
from ..outside.entries import entry, spelled_out
from ..terminal import options as read
from ..terminal.options import (
    Bandwidth,
    Declared,
    Names,
    OptionRecord,
    Unbounded,
    flag,
    option,
    rows,
)
from .defaults import (
    BACKBONE,
    CHECKS,
    COMPONENTS,
    HARDWARE,
    HOST_COPIES,
    LIMITS_NS,
    MODEL,
    MODES,
    OWN_STATES,
    PREFETCH,
    PREFETCH_THRESHOLD_TOKENS,
    PREFIX_TOKENS,
    STAND_IN_WINDOW,
    WRITE_POLICY,
    Mode,
    Pin,
    Pins,
)
from .load import MODELS, RECORDED, Arrivals, Slo, ThinkTime
from .load import NAMES as LIMITS
from .sessions import MOST


class Need(Enum):
    TRACE = auto()  # a trace that was named
    TIMED = auto()  # a clock
    ENGINE = auto()  # a clock, or states, which an engine keeps in its own places
    CHANCE = auto()  # a clock, or sessions that are drawn
    PASSES = auto()  # a clock, or a window pool that is as large as a pass
    SIZED = auto()  # a clock, or a device of the hardware's size
    HOST = auto()  # host memory
    ARRIVALS = auto()  # requests that arrive at their times
    ROUNDS = auto()  # rounds that nothing else delays
    RATE = auto()  # no other rate
    RECORDED = auto()  # no model of arrivals
    STORE = auto()  # storage
    ALONE = auto()  # one replica
    REPLICAS = auto()  # a router
    DECODE = auto()  # replicas that only decode


TRACE_HELP = "a file, plain, gzip or zstd, or a folder of files; - reads stdin"


def _columns(text: str) -> str:
    try:
        parse_columns(text)
    except ValueError as error:
        raise ValueError(str(error)) from None
    return text


@dataclass(frozen=True)
class FormatOptions(OptionRecord):
    """How a trace is read, where its file does not say it."""

    HEADING = "how the trace is read"

    format: str | None = option(
        "format of the trace; `hicache convert --formats` lists them (default: auto)",
        read.choice(("auto", *sorted(FORMATS))),
        "NAME",
        one_value=True,
        needs=(Need.TRACE,),
    )
    block_size: int | None = option(
        "tokens of a block of the trace's ids (default: what the file or its format says)",
        read.between(1, MAX_BLOCK_TOKENS),
        "TOKENS",
        one_value=True,
        needs=(Need.TRACE,),
    )
    tokenizer: str | None = option(
        "the tokenizer.json for a trace of text",
        *read.FILE,
        one_value=True,
        needs=(Need.TRACE,),
        file=str,
    )
    columns: str | None = option(
        "the trace is a log of your own (CSV, JSON, Parquet); its columns, or expressions over "
        "them, are such as time=ts,input='new + cached',output=usage.out,session=chat; a "
        "unit may follow the time: time=ts:ms",
        _columns,
        "ROLE=NAME,...",
        one_value=True,
        commas=True,
        needs=(Need.TRACE,),
    )
    rows: str | None = option(
        "of a log that is one JSON document: where its list of rows is, such as data.requests",
        read.name,
        "PATH",
        one_value=True,
        needs=(Need.TRACE,),
    )
    shared_prefix: int | None = option(
        "of a log: all prompts begin with the same TOKENS, such as a system prompt (default: 0)",
        read.at_least(0),
        "TOKENS",
        one_value=True,
        needs=(Need.TRACE,),
    )

    @property
    def log(self) -> LogOptions:
        """What is said of a log."""
        return LogOptions(self.columns, self.shared_prefix, self.rows)

    def read_from(self, path: str, limit: int) -> Trace:
        """The trace there, read as these options say."""
        how = self.format or "auto", limit, self.block_size, self.tokenizer, self.log
        return open_trace(path, *how)


@dataclass(frozen=True)
class LimitOptions(FormatOptions):
    """limit: requests, 0 for all."""

    HEADING = FormatOptions.HEADING

    limit: int = option(
        "only the first N requests (default: all)",
        *read.COUNT,
        default=0,
        common=True,
        one_value=True,
    )


@dataclass(frozen=True)
class TraceOptions(LimitOptions):
    """The trace, its format and how much of it is read."""

    HEADING = FormatOptions.HEADING

    trace: str = option(TRACE_HELP, read.name, "TRACE", positional=True, common=True, file=str)

    def opened(self) -> Trace:
        """The trace that the options name."""
        return self.read_from(self.trace, self.limit)


@dataclass(frozen=True)
class ReplayedTrace(LimitOptions):
    """The trace of a replay; None for the built-in one."""

    HEADING = LimitOptions.HEADING

    trace: str | None = option(
        TRACE_HELP, read.name, "TRACE", positional=True, optional=True, common=True, file=str
    )
    sample: Fraction | None = option(
        "only this part of the trace, such as 0.25: whole sessions and groups with a common "
        "prefix, chosen by a hash, as a shorter trace of the same load (default: 1)",
        read.part,
        "PART",
        common=True,
        needs=(Need.TRACE,),
    )


@dataclass(frozen=True)
class RunOptions(OptionRecord):
    HEADING = "the run"

    mode: Mode = option(
        "timed: engine and virtual time; hits: one request at a time, no clock, exact counts",
        read.choice(MODES),
        default="timed",
        common=True,
        in_head=True,
    )
    check: Level | None = option(
        "check invariants after every operation, at intervals (sampled), or not (off) (default: "
        "sampled; every for the built-in workload; off where several replays are compared)",
        read.choice(CHECKS),
        common=True,
        one_value=True,
    )
    skip_too_large: bool = option(
        "leave out requests that the device cannot hold, and count them",
        default=False,
    )
    seed: int | None = option(
        "seed of what is random: arrivals that are drawn (--spread, --arrivals), sessions "
        "(--scale-sessions), and the jitter of simulated copies (at most 5 us), which changes the "
        "digest and rarely a printed figure (default: 0)",
        *read.COUNT_OR_0,
        needs=(Need.CHANCE,),
    )


@dataclass(frozen=True)
class OutputOptions(OptionRecord):
    """What `hicache replay` prints and writes; no option of a point of a sweep."""

    HEADING = "what is printed and written"

    verbose: bool = option(
        "print everything: turns, pools, tiers, replicas, parts of the times, checks",
        default=False,
        common=True,
        output=True,
        short="-v",
    )
    config: str | None = option(
        "read the options that are not given here from this file: TOML, such as "
        "`page-size = 64`, or the JSON of a replay, whose options it repeats",
        read.name,
        "FILE",
        output=True,
        file=str,
    )
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout",
        *read.OUTPUT,
        common=True,
        output=True,
    )
    html: str | None = option(
        "also write a report as one HTML file that needs nothing else; - is stdout",
        *read.OUTPUT,
        common=True,
        output=True,
    )
    why: int | None = option(
        "only say why request N hit what it hit, and what it waited for; the first is 0",
        read.at_least(0, read.request_number),
        "N",
        common=True,
        output=True,
    )
    requests: str | None = option(
        "also write one line of JSON for each request: hits, why not more, times",
        *read.OUTPUT,
        output=True,
    )
    timeline: str | None = option(
        "also write what ran when, as Chrome trace events for ui.perfetto.dev; - is stdout",
        *read.OUTPUT,
        output=True,
        needs=(Need.TIMED,),
    )


def _engine(text: str) -> str:
    """The name of an engine, with its version or without, or the path of a file."""
    try:
        engine_profiles.get(text)
    except CallerError as error:
        said = str(error).removeprefix("engine: ")
        raise ValueError(said) from None
    return text


def _hardware(text: str) -> str:
    """The name of a profile, or the path of a measured one."""
    if measured.is_path(text):
        return text
    try:
        return read.choice(hardware.names())(text)
    except ValueError as error:
        raise ValueError(
            f"{error}; or give the path of a file that calibrate wrote, with a / or .json"
        ) from None


def _model(text: str) -> str:
    """The name of a model, completed if its beginning is unique, or the path of a JSON file."""
    if models.is_path(text):
        return text
    try:
        return models.get(text.replace("_", "-")).name
    except CallerError as error:
        said = str(error).removeprefix("model: ")
        raise ValueError(
            f"{said}; or give the path of a file with a model, with a / or .json"
        ) from None


@dataclass(frozen=True)
class TimesOptions(OptionRecord):
    HEADING = "model, hardware and engine (sizes in both modes, times in timed)"

    times: str | None = option(
        lambda: (
            f"time model of forward passes: {spelled_out(registry.TIMES)} (default: "
            f"{DEFAULT_TIMES})"
        ),
        entry(registry.TIMES),
        "NAME",
        needs=(Need.TIMED,),
        tried="pure-roofline",
    )


@dataclass(frozen=True)
class EngineOptions(TimesOptions):
    HEADING = TimesOptions.HEADING

    model: str | None = option(
        f"a name of `hicache models` or its beginning, tiny, or a JSON file with a model (default: "
        f"{MODEL})",
        Names(_model, models.names),
        common=True,
        file=lambda text: text if models.is_path(text) else None,
        keys=True,
        tried="tiny",
    )
    weight_dtype: str | None = option(
        f"type of the weights but the embeddings: {', '.join(models.WEIGHT_BITS)} (default: the "
        "model's)",
        read.choice([*models.WEIGHT_BITS]),
        "TYPE",
        keys=True,
    )
    kv_dtype: str | None = option(
        f"type of cached keys, values and latents: {', '.join(models.KV_DTYPES)} (default: the "
        "model's)",
        read.choice(models.KV_DTYPES),
        "TYPE",
        keys=True,
    )
    hardware: str | None = option(
        lambda: (
            f"{', '.join(hardware.names())}, or a file that calibrate wrote (default: {HARDWARE})"
        ),
        Names(_hardware, hardware.names),
        common=True,
        needs=(Need.SIZED,),
        file=lambda text: text if measured.is_path(text) else None,
    )
    tp: int = option(
        "accelerators that share the model",
        *read.COUNT,
        default=1,
        common=True,
        in_head=True,
        keys=True,
        tried="2",
    )
    pp: int = option(
        "pipeline stages that share the layers, each on --tp accelerators",
        *read.COUNT,
        default=1,
        in_head=True,
        tried="2",
    )
    ep: int | None = option(
        "accelerators over which the routed experts are spread whole, a divisor of --tp (default: "
        "1, all share each expert)",
        *read.COUNT,
        needs=(Need.TIMED,),
    )
    attention_dp: int | None = option(
        "groups of accelerators that attend to requests of their own, a divisor of --tp (default: "
        "1)",
        *read.COUNT,
    )
    dcp: int | None = option(
        "ranks that have the same rows and divide their tokens, as vLLM's decode context parallel "
        "groups, a divisor of these ranks (default: 1)",
        *read.COUNT,
    )
    host_copies: str | None = option(
        f"in host memory each {HOST_COPIES[0]} keeps its pages, or ranks that have the same rows "
        f"keep them once on their {HOST_COPIES[1]} (default: {HOST_COPIES[0]})",
        read.choice([*HOST_COPIES]),
        "WHOSE",
        needs=(Need.HOST,),
        tried="node",
    )
    engine: str | None = option(
        lambda: (
            f"{', '.join(engine_profiles.names())}, such as vllm@0.12.0, or a JSON file with "
            "an engine of your own: how passes are composed, where states of linear layers are "
            "kept, and the time of the host (default: "
            f"{engine_profiles.DEFAULT})"
        ),
        Names(_engine, engine_profiles.names),
        "NAME[@VERSION]",
        common=True,
        needs=(Need.ENGINE,),
        file=lambda text: text if engine_profiles.is_path(text) else None,
        tried="sglang",
    )
    host_bandwidth: Bandwidth | None = option(
        "host link of each rank, in each direction: bytes per second that copies reach (50GB), or "
        "a multiple of what the profile reaches of its peak, 87% for most (0.5x) (default: 1x)",
        read.bandwidth,
        "B",
        needs=(Need.TIMED, Need.HOST),
    )
    scheduler: str | None = option(
        lambda: (
            f"who is admitted next: {spelled_out(registry.SCHEDULERS)} (default: "
            f"{PlainEngine().order})"
        ),
        entry(registry.SCHEDULERS),
        "ORDER",
        needs=(Need.TIMED,),
    )
    token_budget: int | None = option(
        "tokens in one forward pass (default: the engine's)", *read.COUNT, needs=(Need.PASSES,)
    )
    max_running: int | None = option(
        "requests running at once (default: the engine's)", *read.COUNT, needs=(Need.TIMED,)
    )

    @property
    def parallelism(self) -> Parallelism:
        """How the ranks share the model. Raises CallerError for numbers that contradict."""
        shared = self.host_copies == HOST_COPIES[1]
        groups = self.attention_dp or 1, self.dcp or 1
        return Parallelism(self.tp, self.pp, self.ep or 1, *groups, shared_host=shared)


def _pins(text: str) -> Pins:
    found = []
    for one in text.split(","):
        prefix, at, tier = one.partition("@")
        request, colon, tokens = prefix.partition(":")
        if not colon or (at and tier not in ("host", "device")):
            raise ValueError(
                f"expected REQUEST:TOKENS, such as 17:4096 or 17:4096@host, found {one!r}"
            )
        where = Tier.HOST if tier == "host" else Tier.DEVICE
        found.append(Pin(read.request_number(request), read.at_least(1)(tokens), where))
    return Pins(found)


def _components(text: str) -> tuple[str, ...]:
    """Parses a list such as full,mamba; returns it in the project's order."""
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in COMPONENTS]
    if wrong or BACKBONE not in names or len(set(names)) < len(names):
        raise ValueError(
            f"expected {BACKBONE}, and each of {', '.join(COMPONENTS[1:])} at most once, "
            f"separated by commas, found {text!r}"
        )
    return tuple(name for name in COMPONENTS if name in names)


@dataclass(frozen=True)
class HostOptions(OptionRecord):
    """The size of one host pool."""

    HEADING = "host memory"

    host_ratio: Fraction | None = option(
        "host pages for each device page, such as 2 or 0.5; 0 for no host (default: 2 in timed "
        "mode, 0 in hits mode)",
        read.ratio,
        "R",
        common=True,
        excludes="host",
    )
    host_bytes: int | None = option(
        "host memory of all GPUs together, such as 512GB; 0 for none",
        read.byte_size,
        "B",
        common=True,
        excludes="host",
        tried="10GB",
    )
    host_pages: int | None = option("host pool in pages", *read.COUNT_OR_0, excludes="host")


@dataclass(frozen=True)
class CacheOptions(OptionRecord):
    """ttl: nanoseconds."""

    HEADING = "cache"

    page_size: int | None = option(
        "tokens per page (default: the model's own, 64 for most)",
        *read.TOKENS,
        common=True,
        keys=True,
    )
    device_tokens: int | None = option(
        "device pool in tokens (default: 90% of the hardware's memory less the weights)",
        *read.COUNT,
        common=True,
        excludes="device",
        tried="64K",
    )
    device_pages: int | Unbounded | None = option(
        "device pool in pages, or unbounded", read.device_pages, "N", excludes="device"
    )
    write_policy: str | None = option(
        lambda: (
            f"when pages are copied to host: {spelled_out(registry.WRITE_POLICIES)} (default: "
            f"{WRITE_POLICY})"
        ),
        entry(registry.WRITE_POLICIES),
        "POLICY",
        common=True,
        needs=(Need.HOST,),
    )
    exclusive: bool = option(
        "a page that was loaded back gives up its host copy, so that both tiers together hold as "
        "much as one of their summed size (needs --write-policy write_back)",
        default=False,
    )
    eviction: str = option(
        lambda: f"eviction order: {spelled_out(registry.EVICTION_POLICIES)}",
        entry(registry.EVICTION_POLICIES),
        "POLICY",
        default="lru",
        common=True,
    )
    ttl: int | None = option(
        "copies that were not used for this time go, from device and host, such as 10m",
        *read.TIME,
        needs=(Need.ALONE,),
    )
    pin: Pins | None = option(
        "the first tokens of a request's prompt stay on device, or on host, such as 17:4096; "
        "several separated by commas",
        _pins,
        "REQUEST:TOKENS[@host]",
        commas=True,
        needs=(Need.ALONE,),
        tried="0:512",
    )


@dataclass(frozen=True)
class ComponentOptions(OptionRecord):
    """An option whose name begins with that of a component needs that component."""

    HEADING = "components (pools besides full attention's; --model sets all of these)"

    components: tuple[str, ...] | None = option(
        f"some of {', '.join(COMPONENTS)}, separated by commas (default: the model's); without "
        f"--model, the layers of {MODEL} are divided among them in turn",
        _components,
        "LIST",
        commas=True,
        keys=True,
        tried="full,swa",
    )
    swa_window: int | None = option(
        f"window of swa (default: the model's, {STAND_IN_WINDOW:,} without a model)",
        *read.TOKENS,
        keys=True,
    )
    swa_tokens: int | None = option(
        "device pool of swa in tokens (default: a window for each running request, one chunk, and "
        f"a window per {PREFIX_TOKENS:,} tokens of full; at most as many as full)",
        *read.COUNT,
        tried="8K",
    )
    mamba_states: int | None = option(
        f"device pool of mamba in states (default: {OWN_STATES} for each running request and one "
        f"per {PREFIX_TOKENS:,} tokens of full)",
        *read.COUNT,
    )


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
        limit = read.duration_ns(value)
        if not limit:
            raise ValueError(f"{name}: expected a time above 0, found {value!r}")
        limits[f"{name}_ns"] = limit
    return Slo(**limits)


def _arrivals(text: str) -> Arrivals:
    """Reads `gamma:cv=4`."""
    name, _, given = text.partition(":")
    name = read.choice([*MODELS])(name)
    known = MODELS[name].parameters
    found: dict[str, float] = {}
    for part in given.split(",") if given else ():
        key, equals, value = part.strip().partition("=")
        if not equals or key not in known or key in found:
            expected = ", ".join(known) or "no parameter"
            raise ValueError(
                f"{name}: expected {expected}, each at most once and with =, found {part!r}"
            )
        if known[key].is_time:
            found[key] = read.duration_ns(value) / 1e9
        else:
            found[key] = float(read.ratio(value))
    return Arrivals(name, tuple(sorted(found.items())))


def _described() -> str:
    found = []
    for name, model in MODELS.items():
        given = ",".join(
            f"{key}={one.default:g}{'s' * one.is_time}" for key, one in model.parameters.items()
        )
        found.append(f"{name}{':' * bool(given)}{given}: {model.summary}")
    return f"when requests arrive: {'; '.join(found)} (default: recorded)"


def _think_time(text: str) -> ThinkTime:
    if text == "recorded":
        return ThinkTime(None)
    return ThinkTime(0 if text == "none" else read.duration_ns(text))


def _scale(text: str) -> Fraction:
    value = read.positive_ratio(text)
    if value > MOST:
        raise ValueError(f"expected at most {MOST}, found {text!r}")
    return value


@dataclass(frozen=True)
class LoadOptions(OptionRecord):
    """request_rate: requests per second. spread: None for sessions that begin together alone."""

    HEADING = "load (timed mode; docs/load.md)"

    speed: Fraction | None = option(
        "play the trace's times X times as fast, arrivals and delays (default: 1)",
        read.positive_ratio,
        "X",
        common=True,
        needs=(Need.TIMED, Need.RATE),
    )
    scale_sessions: Fraction | None = option(
        "X times the sessions of the trace, with their think times: below 1 a random part of them, "
        "above 1 all of them and copies with other contents and other starts (--seed; default: 1)",
        _scale,
        "X",
        common=True,
        needs=(Need.TRACE, Need.RATE, Need.ARRIVALS),
    )
    concurrency: int | None = option(
        "a closed loop: N requests are in flight, and the next one of the trace starts when one "
        "ends; arrival times are not read",
        *read.COUNT,
        common=True,
        needs=(Need.TIMED,),
    )
    slo: Slo | None = option(
        "limits that a request must keep to count for goodput, such as ttft=2s,tpot=50ms; itl (p99 "
        "of the times between its tokens) and e2e (until its last token), too",
        _slo,
        "LIST",
        common=True,
        commas=True,
        needs=(Need.TIMED,),
        in_head=True,
        tried="ttft=2s",
    )
    arrivals: Arrivals | None = option(
        _described,
        _arrivals,
        "MODEL[:NAME=VALUE,...]",
        commas=True,
        needs=(Need.TIMED, Need.ARRIVALS),
        tried="poisson",
    )
    request_rate: Fraction | None = option(
        "mean arrival rate of first turns, in requests per second (default: that of the trace)",
        read.positive_ratio,
        "N",
        needs=(Need.TIMED, Need.ARRIVALS),
    )
    spread: bool | None = option(
        "requests of one instant arrive evenly until the next instant, for traces with a coarse "
        "clock; with a --seed above 0, at random times until then (default: only sessions that all "
        "begin at one instant, over the length of the longest)",
        needs=(Need.TIMED, Need.ARRIVALS, Need.RECORDED),
    )
    closed_loop: bool | None = option(
        "a turn of a session starts when the turn before it has ended and its think time has "
        "passed; where the trace names no sessions, a prompt that extends an earlier prompt is its "
        "next turn",
        needs=(Need.TIMED,),
    )
    think_time: ThinkTime | None = option(
        "between the end of a turn and the next one: a time such as 2s, none, or recorded: what "
        "the trace has (default: recorded)",
        _think_time,
        "TIME",
        needs=(Need.TIMED,),
    )


_WAITS = [f"{base / 1e9:g}s for {policy}" for policy, (base, _) in LIMITS_NS.items()]


@dataclass(frozen=True)
class StorageOptions(OptionRecord):
    """storage_bandwidth: bytes per second of reads and of writes. storage_latency: nanoseconds.
    prefetch_limit: nanoseconds, in all and for each token."""

    HEADING = "storage, the tier behind host memory"

    storage: str | None = option(
        "sim:read=6GB/s,write=3GB/s,latency=200us for a store in virtual time; file:DIR, "
        "redis://HOST:PORT, mooncake://HOST:PORT or s3://BUCKET?endpoint=URL for a real one, which "
        "keeps small values that stand for pages (docs/storage_replay.md)",
        read.name,
        "ADDRESS",
        common=True,
        commas=True,
        needs=(Need.HOST,),
        tried="sim:read=1GB/s",
    )
    storage_size: int | None = option(
        "most bytes of pages in storage, such as 20G; the least recently used go first (default: "
        "no limit)",
        read.at_least(1, read.byte_size),
        "B",
        needs=(Need.STORE,),
    )
    prefetch: str | None = option(
        lambda: (
            "whether a request waits for its prefetch: "
            f"{', '.join(registry.spellings(registry.PREFETCH_POLICIES))} (default: {PREFETCH})"
        ),
        read.entry(registry.PREFETCH_POLICIES),
        "POLICY",
        needs=(Need.STORE,),
        tried="timeout",
    )
    prefetch_threshold: int | None = option(
        f"do not fetch fewer tokens than this (default: {PREFETCH_THRESHOLD_TOKENS})",
        read.at_least(0),
        "TOKENS",
        needs=(Need.STORE,),
    )
    flush_host_every_round: bool | None = option(
        "empty the host between the rounds of conversations; a round begins when the one before "
        "has ended",
        needs=(Need.HOST, Need.ROUNDS, Need.ALONE),
    )
    flush_device_every_round: bool | None = option(
        "empty the device between the rounds of conversations; a round begins when the one before "
        "has ended",
        needs=(Need.ROUNDS, Need.ALONE),
    )


_COUNT = read.between(1, 1024)
_FLEET = PlainFleet()


def _link(text: str) -> int:
    return read.at_least(1, read.byte_size)(text.removesuffix("/s"))


@dataclass(frozen=True)
class FleetOptions(OptionRecord):
    """router_delay, kv_link_latency: nanoseconds. kv_link: bytes per second."""

    HEADING = "several replicas, each with its own cache"

    replicas: int | None = option(
        "replicas behind a router, each with the device and the host memory of the other options; "
        "one --storage serves all (default: one, without a router)",
        _COUNT,
        "N",
    )
    prefill_replicas: int | None = option(
        "replicas that only prefill; the KV of each prompt moves to one of --decode-replicas",
        _COUNT,
        "N",
    )
    decode_replicas: int | None = option("replicas that only decode", _COUNT, "N")
    router: str | None = option(
        lambda: (
            "which replica gets a request: "
            f"{', '.join(registry.spellings(registry.ROUTERS))} (default: "
            f"{_FLEET.router.name.replace('_', '-')})"
        ),
        read.entry(registry.ROUTERS),
        "NAME",
        needs=(Need.REPLICAS,),
    )
    kv_link: int | None = option(
        "bytes per second out of each prefill replica and into each decode replica, of all its "
        f"GPUs (default: {_FLEET.link.bytes_per_s // 10**9}GB/s)",
        _link,
        "B",
        needs=(Need.DECODE,),
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
    def read(
        cls, words: Iterable[str], prog: str = "hicache", about: str = "", epilog: str = ""
    ) -> Self:
        values, texts = read.read_values(cls.declared(), [*words], prog, about, epilog)
        return cls(**values, texts=tuple(texts.items()))

    @property
    def repeat(self) -> dict[str, str | bool]:
        """What was given, but the trace and what is printed or written, as `--config` reads it."""
        texts = dict(self.texts)
        return {
            one.flag.removeprefix("--"): one.row.parse is None or texts[one.name]
            for one in OPTIONS
            if one.name in texts and not (one.row.output or one.row.positional)
        }

    @property
    def files(self) -> dict[str, str]:
        """The files that the options name, by option."""
        found = {}
        for one in OPTIONS:
            value = getattr(self, one.name)
            path = one.row.file(value) if one.row.file and value is not None else None
            if path is not None:
                found[one.name] = path
        return found

    @property
    def entries(self) -> list[tuple[str, str]]:
        """The policies, schedulers and time models that the options name, with their folders."""
        found = []
        for one in OPTIONS:
            value = getattr(self, one.name)
            if isinstance(one.row.parse, Names) and one.row.parse.package and value is not None:
                found.append((one.row.parse.package, value))
        return found

    @property
    def head(self) -> dict[str, object]:
        """The options that are in the head of a document as they were given."""
        return {one.name: plain(getattr(self, one.name)) for one in OPTIONS if one.row.in_head}


OPTIONS: list[Declared] = rows(ReplayOptions)
OUTPUTS = tuple(one.name for one in OPTIONS if one.row.output)
HOST_SIZES = tuple(one.name for one in rows(HostOptions))


def that_need(need: Need) -> tuple[str, ...]:
    """The options that only a run with this reads."""
    return tuple(one.name for one in OPTIONS if need in one.row.needs)


def plain(value: object) -> object:
    """A value of an option as a JSON value."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else str(value)
    return value if isinstance(value, int | float | str | None) else str(value)


# -- options without effect

# what a run must have: a point of a sweep without it is not the same with the option left out
_HARD = (Need.ALONE,)


class Unread(CallerError):
    """An option was given that the run would not read. field: its name in ReplayOptions."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def check_components(options: ReplayOptions, components: Sequence[str]) -> None:
    """Raises CallerError for an option of a component that the run does not have."""
    names = [one.name for one in OPTIONS]
    for component in COMPONENTS:
        own = [name for name in names if name.startswith(f"{component}_")]
        used = _given(options, own)
        if component not in components and used:
            raise Unread(
                f"{flag(used[0])}: expected {component} among the components, found "
                f"{','.join(components)}; add it to --components or name a --model that has it",
                used[0],
            )


def check_read(options: ReplayOptions, components: Sequence[str], has_host: bool) -> None:
    """Raises CallerError for an option that was given and that no part of the run reads."""
    for need, expected, found, do in _missing(options, components, has_host):
        for name in _given(options, that_need(need)):
            written = flag(name)
            said = f"{written}: expected {expected}, found {found}; {do}, or leave out {flag(name)}"
            raise CallerError(said) if need in _HARD else Unread(said, name)


def _missing(
    options: ReplayOptions, components: Sequence[str], has_host: bool
) -> Iterator[tuple[Need, str, str, str]]:
    """Yields what the run does not have, in words, what it has instead, and what to do."""
    if options.trace is None:
        yield Need.TRACE, "a TRACE to read", "none", "name one"
    if options.mode == "hits":
        no_clock = "hits mode, which serves one request at a time without a clock"
        yield Need.TIMED, "--mode timed", no_clock, "use --mode timed"
        if all(residency(name) != "state" for name in components):
            yield Need.ENGINE, "--mode timed", no_clock, "use --mode timed"
        if options.scale_sessions in (None, 1):
            yield Need.CHANCE, "--mode timed", no_clock, "use --mode timed"
        if not _sizes_window(options, components):
            yield Need.PASSES, "--mode timed", no_clock, "use --mode timed"
        if options.device_pages == read.UNBOUNDED:
            use = "give a size of the device"
            yield Need.SIZED, "--mode timed or a device of its size", "neither", use
    if not has_host:
        yield (
            Need.HOST,
            "a host pool",
            "none",
            "give --host-ratio, --host-pages or --host-bytes",
        )
    if options.concurrency:
        closed = "--concurrency, with which arrival times are not read"
        yield Need.ARRIVALS, "arrivals at their times", closed, "leave out --concurrency"
        yield Need.ROUNDS, "rounds that nothing else delays", "--concurrency", "leave that out"
    if options.request_rate is not None:
        yield Need.RATE, "one rate", "--request-rate", "give that alone"
    if options.arrivals is not None and options.arrivals.name != RECORDED:
        model = f"--arrivals {options.arrivals}"
        yield Need.RECORDED, "the times of the trace", model, "name none"
    if options.storage is None:
        yield Need.STORE, "a store", "none", "name one with --storage"
    yield from _missing_of_fleet(options)


def _missing_of_fleet(options: ReplayOptions) -> Iterator[tuple[Need, str, str, str]]:
    divided = options.prefill_replicas is not None or options.decode_replicas is not None
    if divided or options.replicas is not None:
        yield Need.ALONE, "one replica", "several", "leave out the replicas"
    else:
        yield Need.REPLICAS, "replicas to choose from", "one", "give --replicas"
    if not divided:
        use = "give --prefill-replicas and --decode-replicas"
        yield Need.DECODE, "decode replicas", "none", use


def _sizes_window(options: ReplayOptions, components: Sequence[str]) -> bool:
    """Whether the size of a window pool follows from the tokens of a pass, in hits mode, too."""
    chosen = options.device_pages != read.UNBOUNDED
    return chosen and any(
        residency(name) == "window" and getattr(options, f"{name}_tokens", None) is None
        for name in components
    )


def _given(options: ReplayOptions, names: Sequence[str]) -> list[str]:
    """The options of these that were given."""
    return [name for name in names if getattr(options, name) is not None]
