"""The workload that `hicache replay` runs when no trace is given: its parameters and sizes.

Does not generate the requests; see traces/generators.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from invariants.watch import Level

from ..formats._open import parse
from ..formats.base import Lines, Trace
from ..generators import base, multiturn
from .options import ReplayOptions

NAME = "built-in multiturn"
GENERATOR = "multiturn"
OPTIONS = multiturn.Options(
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

STORY = (
    "No trace was given, so this is the built-in workload: 128 conversations of 12 turns behind "
    "one system prompt. Each turn repeats its history. The device holds a fifth of all tokens and "
    "the host most of the rest. A turn that comes soon hits the device, a later one hits the "
    "host, and a very late one is computed again."
)


def with_defaults(options: ReplayOptions) -> ReplayOptions:
    """Adds the sizes and the check level of the built-in workload where none were given."""
    if options.device_tokens is None and options.device_pages is None:
        options = replace(options, device_tokens=DEVICE_TOKENS)
    if options.host_ratio is None and options.host_pages is None:
        options = replace(options, host_ratio=HOST_RATIO)
    return replace(options, check=options.check or CHECK)


def builtin_trace(limit: int) -> Trace:
    """The built-in workload, parsed by the same reader as a file."""
    lines = (line.encode() for line in base.text(GENERATOR, base.load(GENERATOR), OPTIONS))
    return parse(Lines(NAME, lines), limit=limit)
