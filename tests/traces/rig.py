"""Small helpers of the trace tests: writing traces, and replaying them."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from invariants.fuzz import sequence as sequences
from invariants.fuzz.hicache import play
from invariants.fuzz.sequence import FuzzSequence
from tests.needs import PATIENCE_S
from tests.planted import planted
from tests.tiny import LLAMA
from traces.cli import main
from traces.formats import parse
from traces.formats.base import Jobs, Trace
from traces.formats.reading import Lines
from traces.fuzzing.core import Work
from traces.terminal.options import Names, Option

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
BUG = "donated-slot-stays-with-its-request"  # a planted one, found at once
ROOT = Path(__file__).resolve().parents[2]
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


def jobs_of(*rows: tuple[int, ...]) -> Jobs:
    """Requests of these values: what `Job` has after its index, or the first three or more."""
    usual = (0, 0, 0, -1, -1, 0)
    return Jobs(*np.array([(*row, *usual[len(row) :]) for row in rows], dtype=np.int64).T.copy())


def random_tree(path: Path, requests: int) -> Path:
    """Requests walk down a tree of prompts, low children more often, and cut the last segment at a
    random token. A fourth of them continue the answer of an earlier one instead."""
    draw = np.random.default_rng([0, 2])
    lengths: dict[str, int] = {}
    latest: list[list[list[str | int]]] = []
    records: list[Any] = [HEADER]
    now_us = 0
    for index in range(requests):
        now_us += round(draw.exponential(1e6 / 20))
        if latest and int(draw.integers(100)) < 25:
            prompt = [*latest[int(draw.integers(len(latest)))]]
            prompt.append([f"f{index}", int(draw.integers(1, 513))])
        else:
            node, prompt = "t", []
            for _ in range(int(draw.integers(1, 7))):
                node = f"{node}.{int(draw.integers(4, size=2).min())}"
                prompt.append([node, lengths.setdefault(node, int(draw.integers(1, 513)))])
            last = str(prompt[-1][0])
            prompt[-1] = [last, int(draw.integers(1, lengths[last] + 1))]
        answer: list[str | int] = [f"a{index}", int(draw.integers(1, 65))]
        if len(prompt) < 12:
            latest = [*latest[-15:], [*prompt, answer]]
        records.append({"timestamp": now_us // 1000, "input": prompt, "output": answer})
    return write(path, *records)


def write(path: Path, *records: object) -> Path:
    path.write_bytes(b"".join(as_lines(records)))
    return path


def failing_sequence() -> FuzzSequence:
    """A sequence that fails with BUG planted."""
    with planted(BUG):
        return drawn(1, 5, ("components", "full,mamba"))


def input_files() -> dict[str, str]:
    """A file of each kind that a command reads, with a hard and a soft link to each."""
    write(Path("trace.jsonl"), mooncake([1, 2], 600))
    Path("sequence.jsonl").write_text(sequences.dumps(failing_sequence()))
    Path("model.json").write_text(json.dumps(LLAMA))
    Path("profile.json").write_text("{}")
    names = ("trace.jsonl", "sequence.jsonl", "model.json", "profile.json")
    for name in names:
        Path(f"hard-{name}").hardlink_to(name)
        Path(f"soft-{name}").symlink_to(name)
    return {name: Path(name).read_text() for name in names}


def fails(capsys: Capsys, *arguments: str) -> str:
    """Runs the command, which must fail with one line; returns it."""
    assert main(list(arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("hicache: ")
    assert printed.err.count("\n") == 1
    assert printed.err.endswith("\n")
    assert "Errno" not in printed.err
    return printed.err


def document(folder: Path, *command: str, code: int = 0) -> dict[str, Any]:
    """What a command writes as JSON."""
    out = folder / "out.json"
    assert main([*command, "--json", str(out)]) == code
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def replayed(folder: Path, *words: str) -> dict[str, Any]:
    """The results of a replay that must succeed."""
    return document(folder, "replay", *words)


def records(folder: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The results of a replay and its records, one for each request."""
    rows = folder / "rows.jsonl"
    result = replayed(folder, *words, "--requests", str(rows))
    return result, [json.loads(line) for line in rows.read_text().splitlines()]


def turns_of(folder: Path, *shape: str) -> str:
    """A generated trace of conversations; its path."""
    path = str(folder / "turns.jsonl")
    assert main(["generate", "multiturn", *shape, "-o", path]) == 0
    return path


def python(*words: str, **value: Any) -> subprocess.CompletedProcess[str]:
    """Runs this interpreter, at the root of the project unless another folder is given."""
    usual: dict[str, Any] = {"cwd": ROOT, "timeout": PATIENCE_S, "check": False}
    how = {"capture_output": True, "text": True} | usual | value
    return subprocess.run([sys.executable, *words], **how)


class Ray:
    """In place of the package ray: answers at once, the newest first."""

    up = False
    is_initialized = staticmethod(lambda: Ray.up)
    cluster_resources = staticmethod(lambda: {"CPU": 2.0})
    wait = staticmethod(lambda refs, num_returns, timeout: (refs[-1:], refs[:-1]))
    get = staticmethod(lambda ref: ref())
    exceptions = SimpleNamespace(RayTaskError=ZeroDivisionError, RayError=ZeroDivisionError)

    @staticmethod
    def init(**how: Any) -> None:
        Ray.up = True

    @staticmethod
    def shutdown() -> None:
        Ray.up = False

    @staticmethod
    def remote(function: Callable[..., Any]) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda *args: lambda: function(*args))


# where its last name, 128, 0.5, 2s or 5GB does not
TRIED = {
    "times": "pure-roofline",
    "model": "tiny",
    "tp": "2",
    "pp": "2",
    "engine": "sglang",
    "host_bytes": "10GB",
    "device_tokens": "64K",
    "pin": "0:512",
    "components": "full,swa",
    "slo": "ttft=2s",
    "arrivals": "poisson",
    "storage": "sim:read=1GB/s",
    "prefetch": "timeout:128",
    "flush_every_round": "device",
}


def tried(item: Option) -> list[str]:
    """The option as a user writes it, with a value that changes a run."""
    if item.name in TRIED or item.parse is None:
        return [item.flag, *filter(None, [TRIED.get(item.name)])]
    if isinstance(item.parse, Names):
        return [item.flag, item.parse.known()[-1]]
    for value in ("128", "0.5", "2s", "5GB"):
        with suppress(ValueError):
            item.parse(value)
            return [item.flag, value]
    pytest.fail(f"{item.flag}: give TRIED a value that changes a run")


def drawn(seed: int, size: int, *config: tuple[str, str]) -> FuzzSequence:
    """The sequence of a seed, drawn without checks."""
    return play.generate(Work(size, config).sample(seed), size, "off").sequence
