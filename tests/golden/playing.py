"""Recorded events for a core, what was recorded of everything (golden.json), and commands.

The tests of this folder hold what may not change while the project gets smaller. What they drive is
`Core.handle`, the device seam, stores, files and commands. HICACHE_GOLDEN=record writes the files
that `same` compares with anew.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from hicache.core.core import Core
from hicache.core.events import Event
from hicache.core.types import Record
from hicache.runtime.recording import Recording, parse
from tests.traces import rig
from tests.traces.rig import ROOT, document
from traces.cli import main

__all__ = ["ROOT", "document"]

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
        for observer in observers:
            observer.on_event(event, core.view)
        outcomes = core.handle(event)
        for item in observers:
            item.on_outcomes(event, outcomes, core.view)
        yield event, outcomes


def plain(value: Any) -> Any:
    """A value of an outcome in JSON, with the names of its records."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | Record):
        name = [] if type(value) is tuple else [type(value).__name__]
        return [*name, *map(plain, value)]
    return int(value) if isinstance(value, IntEnum | np.integer) else value


def digest_of(outcomes: Any) -> str:
    text = json.dumps([[plain(item) for item in each] for each in outcomes])
    return sha256(text.encode()).hexdigest()[:32]


def decisions(name: str) -> str:
    """The digest of all that a new core answers to the events of a recording."""
    recording = recorded(name)
    return digest_of(message for _, message in play(recording, Core(recording.config)))


def replayed(folder: Path, *words: str) -> dict[str, Any]:
    """The figures of `hicache replay` that may not change."""
    return figures(rig.replayed(folder, *words))


def figures(document: dict[str, Any]) -> dict[str, Any]:
    full = document["total"]
    names = ("requests", "input_tokens", "computed_tokens", "lost_tokens", "hit_tokens")
    return {"digest": document["digest"], **{name: full[name] for name in names}}


def python(hash_seed: int, *words: str) -> str:
    """What a new process prints, under this hash seed, from the source."""
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "HICACHE_BUILD": "pure"}
    return str(rig.python(*words, env=env, check=True).stdout)


def turns(folder: Path, clients: int = 6, rounds: int = 5) -> str:
    """A trace of conversations."""
    return rig.turns_of(folder, "--clients", str(clients), "--rounds", str(rounds))


def run(*words: str) -> None:
    assert main(list(words)) == 0, words


def conversations(
    path: Path, requests: int = 48, sessions: int = 8, gap_ms: int = 200, blocks: int = 3
) -> str:
    """A trace in Mooncake's format: turns of conversations behind one system prompt of two blocks
    of 512 tokens. gap_ms: between two requests. blocks: what a turn adds to its history."""
    histories: list[list[int]] = [[0, 1] for _ in range(sessions)]
    lines, fresh = [], 1000
    for number in range(requests):
        history = histories[(number * number + number // 5) % sessions]
        added = 1 + (number * 7) % (2 * blocks)
        history += range(fresh, fresh + added)
        fresh += added
        line = {"timestamp": number * gap_ms, "input_length": 512 * len(history)}
        line |= {"output_length": 20 + (number * 37) % 180, "hash_ids": history}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))
    return str(path)


def same(name: str, key: str, result: Any) -> None:
    """Compare with what is recorded in the file of this name under this key. Numbers must be equal
    to the last bit."""
    file = HERE / f"{name}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    result = json.loads(json.dumps(result))
    if os.environ.get("HICACHE_GOLDEN") == "record":
        rows = [
            f"{json.dumps(item)}: {json.dumps(it)}"
            for item, it in sorted({**known, key: result}.items())
        ]
        file.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        return
    assert result == known[key], f"{name}.json, {key}"


def some(document: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The values at these places, such as "total.hit_tokens"."""
    result = {}
    for key in keys:
        value: Any = document
        for part in key.split("."):
            value = value[part]
        result[key] = value
    return result
