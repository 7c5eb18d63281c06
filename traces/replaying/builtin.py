"""The workload that `hicache replay` runs when it is given no trace.

Lives here: its parameters and what they are chosen to show. Must not live here: how it is made
(traces/generators) or replayed.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import cast

from hicache import registry

from ..formats._open import parse
from ..formats.base import Lines, Trace
from ..generators import base

GENERATORS = "traces.generators"
NAME = "built-in multiturn"
GENERATOR = "multiturn"
OPTIONS = {
    "clients": 128,
    "rounds": 12,
    "system_tokens": 1024,
    "think_ms": 10000,
    "start_ms": 10000,
    "seed": 1,
}

# the conversations end with 0.8 M tokens: a fifth fits the device, most of the rest the host; LRU
# falls off a cliff at a host a seventh smaller, and at a larger one nothing is computed twice
DEVICE_TOKENS = 160_000
HOST_RATIO = Fraction("3.5")

CHECK = "every"

STORY = (
    "No trace was given, so this is the built-in workload: 128 conversations of 12 turns behind "
    "one system prompt, each turn repeating its history. The device holds a fifth of it and the "
    "host most of the rest, so that turns hit the device when they come soon, the host when they "
    "come late, and are computed again when they come too late. Every operation is checked."
)


def load_generator(name: str) -> base.Generator:
    """The generator of that name. Raises CallerError that says which exist."""
    return cast(base.Generator, registry.load(GENERATORS, name))


def builtin_trace(limit: int) -> Trace:
    """The built-in workload, through the same reader as a file."""
    generator = load_generator(GENERATOR)
    options = argparse.Namespace(**{**vars(base.defaults(generator)), **OPTIONS})
    lines = (line.encode() for line in base.text(GENERATOR, generator, options))
    return parse(Lines(NAME, lines), limit=limit)
