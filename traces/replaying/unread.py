"""Options that a run would not read: each is refused in one line that says what would read it.

Only options that were given count, so their defaults are None in the record. Does not choose any
value; see settings and pools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from hicache.core.components.base import residency
from hicache.core.errors import CallerError

from ..loads.base import RECORDED
from ..terminal.options import UNBOUNDED
from .options import COMPONENTS, ReplayOptions


class Unread(CallerError):
    """An option was given that the run would not read. field: its name in ReplayOptions."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


_TIMED = (
    *(
        "seed",
        "speed",
        "spread",
        "host_bandwidth",
        "load_groups",
        "scheduler",
        "max_running",
        "times",
        "engine",
        "ep",
    ),
    *("slo", "arrivals", "request_rate", "concurrency", "closed_loop", "think_time"),
)
_ARRIVALS = ("arrivals", "request_rate", "spread")
_STORAGE = (
    *("storage_size", "storage_bandwidth", "storage_latency", "prefetch", "prefetch_threshold"),
    *("prefetch_budget", "prefetch_limit"),
)
_STORAGE_TIMED = ("storage_bandwidth", "storage_latency", "prefetch_limit")
_HOST = ("write_policy", "load_threshold", "load_quota", "load_groups", "host_bandwidth")


def check_components(options: ReplayOptions, components: Sequence[str]) -> None:
    """Raises CallerError for an option of a component that the run does not have."""
    names = [field.name for field in fields(options)]
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
    for names, need, found, do in _unread(options, components, has_host):
        used = _given(options, names)
        if used:
            name = _written(options, used[0])
            said = f"{name}: expected {need}, found {found}; {do}, or leave it out"
            raise Unread(said, used[0])


def _unread(
    options: ReplayOptions, components: Sequence[str], has_host: bool
) -> Iterator[tuple[Sequence[str], str, str, str]]:
    """Yields (options that are not read, what would read them, what there is, what to do)."""
    if options.trace is None:
        yield ("format", "block_size", "tokenizer", "sample"), "a TRACE to read", "none", "name one"
    if options.mode == "hits":
        no_clock = "hits mode, which serves one request at a time without a clock"
        yield _TIMED, "--mode timed", no_clock, "use --mode timed"
        yield _STORAGE_TIMED, "--mode timed", no_clock, "use --mode timed"
        if not _sizes_window(options, components):
            yield ("token_budget",), "--mode timed", no_clock, "use --mode timed"
        if options.device_pages == UNBOUNDED:
            use = "give a size of the device"
            yield ("hardware",), "--mode timed or a device of its size", "neither", use
    if not has_host:
        use = "give --host-ratio, --host-pages or --host-bytes"
        yield _HOST, "a host pool", "none", use
        yield ("storage", "flush_host_every_round"), "a host pool", "none", use
    if options.concurrency:
        closed = "--concurrency, with which arrival times are not read"
        yield _ARRIVALS, "arrivals at their times", closed, "leave out --concurrency"
        flushed = ("flush_host_every_round", "flush_device_every_round")
        yield flushed, "rounds that nothing else delays", "--concurrency", "leave that out"
    if options.request_rate is not None:
        yield ("speed",), "one rate", "--request-rate", "give that alone"
    if options.arrivals is not None and options.arrivals.name != RECORDED:
        yield ("spread",), "the times of the trace", f"--arrivals {options.arrivals}", "name none"
    if options.eviction != "cost_aware":
        yield (
            ("recompute_cost",),
            "--eviction cost_aware",
            options.eviction,
            "use that eviction order",
        )
    if options.storage is None:
        yield _STORAGE, "a store", "none", "name one with --storage"


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


def flag(name: str) -> str:
    """The option as the user writes it."""
    return f"--{name.replace('_', '-')}"
