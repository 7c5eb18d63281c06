"""The options of `hicache replay` as one frozen record, which is also their declaration.

Each field is an option with its row (see terminal/rows). A new option is a field of a file in
`declared`. An option without effect is refused in one line that says what would read it: its row
names what it needs, and here is when a run has that. Only options that were given count, so their
defaults are None in the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hicache.core.components.base import residency
from hicache.core.errors import CallerError

from ..terminal.options import UNBOUNDED, Names
from ..terminal.rows import Declared, flag, rows
from .declared.cache import CacheOptions, ComponentOptions, HostOptions
from .declared.engine import EngineOptions
from .declared.fleet import FleetOptions
from .declared.load import LoadOptions
from .declared.needs import Need
from .declared.run import OutputOptions, ReplayedTrace, RunOptions
from .declared.storage import StorageOptions
from .defaults import COMPONENTS
from .load import RECORDED


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
    the trace. So an option that the run would ignore can be told from its default (see unread)."""

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
            written = _written(options, name)
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
        if options.scale_sessions in (None, 1):
            yield Need.CHANCE, "--mode timed", no_clock, "use --mode timed"
        if not _sizes_window(options, components):
            yield Need.PASSES, "--mode timed", no_clock, "use --mode timed"
        if options.device_pages == UNBOUNDED:
            use = "give a size of the device"
            yield Need.SIZED, "--mode timed or a device of its size", "neither", use
    if not has_host:
        yield Need.HOST, "a host pool", "none", "give --host-ratio, --host-pages or --host-bytes"
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
    chosen = options.device_pages != UNBOUNDED
    return chosen and any(
        residency(name) == "window" and getattr(options, f"{name}_tokens", None) is None
        for name in components
    )


def _given(options: ReplayOptions, names: Sequence[str]) -> list[str]:
    """The options of these that were given."""
    return [name for name in names if getattr(options, name) is not None]


def _written(options: ReplayOptions, name: str) -> str:
    """The option as the user wrote it: one that says no has `no` before it."""
    return flag(f"no_{name}" if getattr(options, name) is False else name)
