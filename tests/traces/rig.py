"""Small helpers of the trace tests: writing traces, and replaying them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.models import get
from hicache.models._document import as_document
from invariants.fuzz.tapes import tape as tapes
from sim.recorder import Recorder
from traces.formats._open import parse
from traces.formats.base import Lines, Paged, Trace
from traces.fuzzing.work import Work
from traces.replaying.account import Account, ceiling_of
from traces.replaying.hits import HitsReplay

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
BUG = "donated-slot-stays-with-its-request"  # a planted one, found at once
HEADER = {"format": "hicache-trace", "version": 1}


def mooncake(ids: list[int], length: int = 0, timestamp: float = 0, **other: Any) -> dict[str, Any]:
    record = {
        "timestamp": timestamp,
        "input_length": length or 512 * len(ids),
        "output_length": 1,
        "hash_ids": ids,
    }
    return {**record, **other}


def native(*segments: tuple[str, int], output: tuple[str, int], **other: Any) -> dict[str, Any]:
    start = {} if "after" in other else {"timestamp": 0}
    return {**start, "input": [list(part) for part in segments], "output": list(output), **other}


def as_lines(records: Iterable[object]) -> list[bytes]:
    return [json.dumps(record).encode() + b"\n" for record in records]


def read(*records: object, format_name: str = "auto") -> Trace:
    return parse(Lines("trace", as_lines(records)), format_name)


def write(path: Path, *records: object) -> Path:
    path.write_bytes(b"".join(as_lines(records)))
    return path


def replay_hits(
    paged: Paged, device: int, host: int = 0, policy: str = "write_through"
) -> tuple[Account, Core, str]:
    """Account, core and digest after the whole trace."""
    account = Account(paged.jobs, paged.page_size, ceiling_of(paged, whole_prompts=True))
    config = Config(
        page_size=paged.page_size,
        device_pages=(device,),
        host_pages=(host,),
        write_policy=policy,
    )
    recorder = Recorder(lambda: 0)
    replay = HitsReplay(paged, config, account, (recorder,))
    replay.run(lambda done: None)
    return account, replay.core, recorder.digest()


def input_files() -> dict[str, str]:
    """A file of each kind that a command reads, with a hard and a soft link to each."""
    write(Path("trace.jsonl"), mooncake([1, 2], 600))
    tapes.write(Path("tape.jsonl"), Work(5, ("full", "mamba"), plant=BUG).drawn(16))
    Path("model.json").write_text(json.dumps(as_document(get("llama-3.1-8b"))))
    Path("profile.json").write_text("{}")
    names = ("trace.jsonl", "tape.jsonl", "model.json", "profile.json")
    for name in names:
        Path(f"hard-{name}").hardlink_to(name)
        Path(f"soft-{name}").symlink_to(name)
    return {name: Path(name).read_text() for name in names}
