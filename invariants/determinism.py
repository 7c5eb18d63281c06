"""The double run: the same work in two fresh processes must leave the same trail.

Lives here: the trail (a rolling digest with a checkpoint every so many events), and the runner that
compares two of them under different hash seeds. Must not live here: what the work is.

A trail ends with the digest of everything. Two trails that differ part at one checkpoint, so the
first divergent event lies in the window before it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hicache.core.actions import Outcome
from hicache.core.events import Event
from hicache.core.view import CoreView

from .base import NONDETERMINISM, Violation

CHECKPOINT_EVERY = 256
HASH_SEEDS = ("0", "4242")


class Nondeterminism(Violation):
    exit_code = NONDETERMINISM


class Trail:
    """An observer that digests every event and every outcome."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._events = 0
        self.checkpoints: list[str] = []

    def on_event(self, event: Event, view: CoreView) -> None:
        self._add(event)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for item in outcomes:
            self._add(item)
        self._events += 1
        if self._events % CHECKPOINT_EVERY == 0:
            self.checkpoints.append(self._digest.hexdigest())

    def end(self) -> list[str]:
        """All checkpoints and the digest of the whole."""
        return [*self.checkpoints, self._digest.hexdigest()]

    def _add(self, item: Any) -> None:
        self._digest.update(type(item).__name__.encode())
        for value in item:
            self._add_value(value)

    def _add_value(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._digest.update(np.ascontiguousarray(value, dtype="<i8").tobytes())
        elif isinstance(value, bytes):
            self._digest.update(value)
        elif isinstance(value, tuple):
            self._digest.update(b"(%d" % len(value))
            for one in value:
                self._add_value(one)
        else:
            self._digest.update(repr(value).encode())
        self._digest.update(b",")


def run_twice(command: Sequence[str], replay_command: str = "") -> list[str]:
    """Runs a command that prints a trail, one checkpoint a line, under two hash seeds.

    Returns the trail. Raises Nondeterminism naming the window of events in which they part, and
    RuntimeError with the command's own words where it fails.
    """
    one, other = (_trail(command, seed) for seed in HASH_SEEDS)
    if one == other:
        return one
    pairs = zip(one, other, strict=False)
    first = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    raise Nondeterminism(
        "DETERMINISM",
        "The same input gives the same events in every process.",
        f"events {first * CHECKPOINT_EVERY + 1}..{(first + 1) * CHECKPOINT_EVERY}: "
        f"{_at(one, first)} under hash seed {HASH_SEEDS[0]}, "
        f"{_at(other, first)} under {HASH_SEEDS[1]}",
        (),
        replay_command or " ".join(command),
    )


def _at(trail: list[str], index: int) -> str:
    return trail[index][:16] if index < len(trail) else "(ended)"


def _trail(command: Sequence[str], hash_seed: str) -> list[str]:
    ran = subprocess.run(
        list(command),
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {ran.returncode}\n{ran.stderr}")
    return ran.stdout.split()


def python(code: str) -> list[str]:
    """The command that runs a piece of Python in a fresh process."""
    return [sys.executable, "-c", code]
