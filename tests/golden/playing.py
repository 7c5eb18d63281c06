"""Recorded events for a core, what was recorded of everything (golden.json), and commands.

The tests of this folder hold what may not change while the project gets smaller. What they drive is
`Core.handle`, the device seam, stores, files and commands.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from enum import IntEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache.core.core import Core
from hicache.core.events import Event
from hicache.runtime.recording import Recording, parse
from tests.traces import rig

HERE = Path(__file__).parent
GOLDEN: dict[str, Any] = json.loads((HERE / "golden.json").read_text())
RECORDINGS = sorted(path.stem for path in (HERE / "recordings").glob("*.jsonl"))
SHORT = sorted(path.stem for path in (HERE / "short").glob("*.jsonl"))  # of one rare decision each


def recorded(name: str) -> Recording:
    folder = "short" if name in SHORT else "recordings"
    path = HERE / folder / f"{name}.jsonl"
    return parse(str(path), path.read_bytes().splitlines(keepends=True))


def events_of(recording: Recording) -> list[Event]:
    return [step.event for step in recording.steps if step.event is not None]


def play(
    recording: Recording, core: Core, observers: Sequence[Any] = ()
) -> Iterator[tuple[Event, list[Any]]]:
    """Each event with the outcomes of the core, after the observers have seen both."""
    for event in events_of(recording):
        for one in observers:
            one.on_event(event, core.view)
        outcomes = core.handle(event)
        for one in observers:
            one.on_outcomes(event, outcomes, core.view)
        yield event, outcomes


def plain(value: Any) -> Any:
    """A value of an outcome in JSON, with the names of its records."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        name = [type(value).__name__] if hasattr(value, "_fields") else []
        return [*name, *map(plain, value)]
    return int(value) if isinstance(value, IntEnum | np.integer) else value


def digest_of(outcomes: Any) -> str:
    text = json.dumps([[plain(one) for one in each] for each in outcomes])
    return sha256(text.encode()).hexdigest()[:32]


def decisions(name: str) -> str:
    """The digest of all that a new core answers to the events of a recording."""
    recording = recorded(name)
    return digest_of(said for _, said in play(recording, Core(recording.config)))


def replayed(folder: Path, *words: str) -> dict[str, Any]:
    """The figures of `hicache replay` that may not change."""
    return figures(rig.replayed(folder, *words))


def figures(document: dict[str, Any]) -> dict[str, Any]:
    whole = document["whole"]
    names = ("requests", "input_tokens", "computed_tokens", "lost_tokens", "hit_tokens")
    return {"digest": document["digest"], **{name: whole[name] for name in names}}


def python(hash_seed: int, *words: str) -> str:
    """What a new process prints, under this hash seed, from the source."""
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "HICACHE_BUILD": "pure"}
    return str(rig.python(*words, env=env, check=True).stdout)


def turns(folder: Path, clients: int = 6, rounds: int = 5) -> str:
    """A trace of conversations."""
    return rig.turns_of(folder, "--clients", str(clients), "--rounds", str(rounds))


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> str:
    return turns(tmp_path_factory.mktemp("turns"))
