"""The workload that `hicache replay` runs when it is given no trace.

Lives here: its parameters and what they are chosen to show. Must not live here: how it is made
(traces/generators) or replayed.
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

# the conversations end with 0.8 M tokens: a fifth fits the device, most of the rest the host; LRU
# falls off a cliff at a host a seventh smaller, and at a larger one nothing is computed twice
DEVICE_TOKENS = 160_000
HOST_RATIO = Fraction("3.5")

CHECK: Level = "every"

STORY = (
    "No trace was given, so this is the built-in workload: 128 conversations of 12 turns behind "
    "one system prompt. Each turn repeats its history. The device holds a fifth of all tokens and "
    "the host most of the rest. A turn that comes soon hits the device, a later one hits the "
    "host, and a very late one is computed again. Every operation is checked."
)


def filled(options: ReplayOptions) -> ReplayOptions:
    """With the sizes and the checks that the workload is meant for, where none were asked for."""
    if options.device_tokens is None and options.device_pages is None:
        options = replace(options, device_tokens=DEVICE_TOKENS)
    if options.host_ratio is None and options.host_pages is None:
        options = replace(options, host_ratio=HOST_RATIO)
    return replace(options, check=options.check or CHECK)


def builtin_trace(limit: int) -> Trace:
    """The built-in workload, through the same reader as a file."""
    lines = (line.encode() for line in base.text(GENERATOR, base.load(GENERATOR), OPTIONS))
    return parse(Lines(NAME, lines), limit=limit)
