"""`hicache convert`: what it writes, packs, refuses and leaves behind."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import zstandard

from tests.conversation import beside
from traces.cli import main
from traces.formats import native
from traces.formats._open import open_trace
from traces.replaying.account import ceiling_of

from .formats_drawn import SAMPLES
from .rig import Capsys, Patch, mooncake, write

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_a_name_says_how_the_file_is_packed(ending: str) -> None:
    write(Path("in.jsonl"), mooncake([1, 2, 9], 1100), mooncake([1, 2, 3], 1500, 5))
    assert main(["convert", "in.jsonl", "-o", f"out.{ending}"]) == 0
    content = Path(f"out.{ending}").read_bytes()
    unpack = {
        "jsonl.gz": gzip.decompress,
        "jsonl.zst": zstandard.ZstdDecompressor().decompressobj().decompress,
    }
    header, *requests = unpack.get(ending, bytes)(content).decode().splitlines()
    assert json.loads(header) == {
        "format": "hicache-trace",
        "version": 2,
        "made_by": {"command": "hicache convert", "source": "in.jsonl"},
        "requests": "blocks",
        "block_size": 512,
        "partial_blocks": True,
        "output_blocks": False,
    }
    assert [json.loads(line)["blocks"] for line in requests] == [[[0, 3]], [[0, 2], 3]]
    assert sorted(os.listdir()) == sorted(["in.jsonl", f"out.{ending}"])


def test_a_limit_and_a_proved_block_size() -> None:
    write(Path("in.jsonl"), mooncake([1, 2, 3], 33), mooncake([1, 2, 4], 40), mooncake([9], 9))
    assert main(["convert", "in.jsonl", "--limit", "2", "-o", "out.jsonl"]) == 0
    trace = open_trace("out.jsonl")
    assert trace.block_size == 16
    assert len(trace.jobs) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("in.jsonl -o in.jsonl", "expected another file than the trace"),
        ("in.jsonl -o out.jsonl", "in.jsonl:2: expected each of a request's hash_ids once"),
        ("in.jsonl -o no/out.jsonl", "no directory there"),
        ("in.jsonl", "convert: expected TRACE and --output FILE"),
    ],
)
def test_a_fault_leaves_nothing_behind(words: str, said: str, capsys: Capsys) -> None:
    write(Path("in.jsonl"), mooncake([1, 2], 600), mooncake([4, 4], 600))
    assert main(["convert", *words.split()]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert os.listdir() == ["in.jsonl"]


def test_an_interrupt_leaves_nothing_behind(monkeypatch: Patch) -> None:
    def interrupted(*_: object) -> object:
        yield "half\n"
        raise KeyboardInterrupt

    write(Path("in.jsonl"), mooncake([1, 2], 600))
    monkeypatch.setattr(native, "texts", interrupted)
    assert main(["convert", "in.jsonl", "-o", "out.jsonl"]) == 130
    assert os.listdir() == ["in.jsonl"]


def test_a_trace_without_times_stays_without() -> None:
    records = [mooncake([1, 2]), mooncake([1, 3])]
    for record in records:
        del record["timestamp"]
    write(Path("in.jsonl"), *records)
    assert main(["convert", "in.jsonl", "-o", "out.jsonl"]) == 0
    assert "timestamp" not in Path("out.jsonl").read_text()
    assert open_trace("out.jsonl").jobs.timed is open_trace("in.jsonl").jobs.timed is False
    assert main(["replay", "out.jsonl"]) == 2  # asks for arrivals


def test_segments_are_converted_as_they_are() -> None:
    Path("in.jsonl").write_text(SAMPLES["native"])
    assert main(["convert", "in.jsonl", "-o", "out.jsonl"]) == 0
    source, made = open_trace("in.jsonl"), open_trace("out.jsonl")
    assert list(source.jobs) == list(made.jobs)
    keys = [[t.paged(1).key(job, job.input_length) for job in t.jobs] for t in (source, made)]
    assert keys[0] == keys[1]


def test_what_was_left_out_is_told(capsys: Capsys) -> None:
    run = {"input_lens": [5, 6, 7], "output_lens": [1, 0, 2], "start_times": [1, 2, 3]}
    Path("run.json").write_text(json.dumps(run))
    assert main(["convert", "run.json", "-o", "-"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 3
    assert (
        printed.err
        == "hicache: note: 1 requests without a prompt or an answer were left out; they failed.\n"
    )


def test_converted_sessions_of_agents_hit_the_same() -> None:
    sessions = str(beside("weka"))
    assert main(["convert", sessions, "-o", "out.jsonl.zst"]) == 0
    source, made = open_trace(sessions), open_trace("out.jsonl.zst")
    assert list(source.jobs) == list(made.jobs)
    for size in (16, 64, 256):
        hits = [ceiling_of(trace.paged(size), True).tolist() for trace in (source, made)]
        assert hits[0] == hits[1]
