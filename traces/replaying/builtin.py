"""The workload that `hicache replay` runs when no trace is given: its parameters and sizes.

Does not generate the requests; see traces/generators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.watch import Level

from ..formats import parse
from ..formats.base import Paged, Trace, sampled
from ..formats.reading import About, Lines
from ..generators import Multiturn, text
from ..terminal.options import WITHOUT_SPACES, is_size
from .load import loaded
from .options import ReplayOptions

NAME = "built-in multiturn"
GENERATOR = "multiturn"
OPTIONS = Multiturn(
    clients=128,
    rounds=12,
    input_tokens=256,
    output_tokens=256,
    system_tokens=1024,
    think_ms=10000,
    start_ms=10000,
    seed=1,
)

# The conversations end with 0.8 M tokens. A fifth of them fits on the device, and most of the rest
# on the host. The hit rate of LRU falls sharply if the host is a seventh smaller. If it is larger,
# nothing is computed twice.
DEVICE_TOKENS = 160_000
HOST_RATIO = Fraction("3.5")

CHECK: Level = "every"


def opened(options: ReplayOptions) -> tuple[ReplayOptions, Trace]:
    """The options and the trace; the built-in trace and its defaults if none was named."""
    if options.trace is None:
        options = with_defaults(options)
    return options, loaded(options, as_recorded(options))


def as_recorded(options: ReplayOptions) -> Trace:
    """The trace before the options of load change when its requests arrive. Raises CallerError for
    a trace that is a size, which a space separated from its option."""
    if options.trace is None:
        return builtin_trace(options.limit)
    if is_size(options.trace) and not Path(options.trace).exists():
        raise CallerError(
            f"{options.trace}: expected the name of a trace, found a size; {WITHOUT_SPACES}"
        )
    trace = options.read_from(options.trace, options.limit)
    if options.sample is None:
        return trace
    return sampled(trace, options.sample)


def story(trace: Trace, paged: Paged) -> str:
    """What the built-in workload is with these options."""
    depths: list[int] = []
    for job in trace.jobs:
        depths.append(depths[job.after] + 1 if job.after >= 0 else 1)
    count, turns = depths.count(1), max(depths)
    pages = 1 + max(int(paged.chain(job).max()) for job in trace.jobs)
    return (
        f"No trace given: {count} conversation{'s' * (count > 1)} of {turns} "
        f"turn{'s' * (turns > 1)}, {pages * paged.page_size:,} different tokens."
    )


def with_defaults(options: ReplayOptions) -> ReplayOptions:
    """Adds the sizes and the check level of the built-in workload where none were given."""
    if options.device_tokens is None and options.device_pages is None:
        options = replace(options, device_tokens=DEVICE_TOKENS)
    hosts = (options.host_ratio, options.host_pages, options.host_bytes)
    if all(given is None for given in hosts):
        options = replace(options, host_ratio=HOST_RATIO)
    return replace(options, check=options.check or CHECK)


def builtin_trace(limit: int) -> Trace:
    """The built-in workload, parsed by the same reader as a file."""
    return parse(Lines(NAME, _lines()), about=About(limit=limit))


def builtin_digest() -> str:
    """The SHA-256 of all that the built-in workload says."""
    digest = sha256()
    for line in _lines():
        digest.update(line)
    return digest.hexdigest()


def _lines() -> Iterator[bytes]:
    return (line.encode() for line in text(GENERATOR, OPTIONS))
