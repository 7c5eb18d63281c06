"""`hicache convert`: what it writes, packs, refuses and leaves behind. Bursts of a generator."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.tokenizer import tiny_tokenizer
from traces.cli import main
from traces.formats import native, open_trace, parse, reading
from traces.formats.base import Trace
from traces.formats.reading import About, Format, Lines, Row
from traces.generators import GENERATORS, text
from traces.replaying.account import ceiling_of

from .formats_drawn import SAMPLES
from .rig import Capsys, as_lines, mooncake, write

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
    assert json.loads(header)["made_by"] == {"command": "hicache convert", "source": "in.jsonl"}
    assert [json.loads(line)["blocks"] for line in requests] == [[[0, 3]], [[0, 2], 3]]
    assert sorted(os.listdir()) == sorted(["in.jsonl", f"out.{ending}"])
    assert main(["convert", "in.jsonl", "--limit", "1", "-o", "out.jsonl"]) == 0
    assert len(open_trace("out.jsonl").jobs) == 1


def test_what_was_left_out_is_told(capsys: Capsys) -> None:
    run = {"input_lens": [5, 6, 7], "output_lens": [1, 0, 2], "start_times": [1, 2, 3]}
    Path("run.json").write_text(json.dumps(run))
    assert main(["convert", "run.json", "-o", "-"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 3
    assert "1 requests without a prompt or an answer were left out" in printed.err


def same(first: Trace, second: Trace) -> None:
    """Both say the same of every request, whatever the names of their blocks."""
    assert list(first.jobs) == list(second.jobs)
    assert first.identity == second.identity
    assert first.block_size == second.block_size
    for size in (4, 16, 64):
        item, other = first.paged(size), second.paged(size)
        assert item.knows_output == other.knows_output
        assert ceiling_of(item, True).tolist() == ceiling_of(other, True).tolist()
        for job in first.jobs:
            assert item.chain(job).tolist() == other.chain(job).tolist()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_converted_trace_hits_the_same_to_the_token(name: str) -> None:
    Path("in").write_text(SAMPLES[name])
    words = ["--tokenizer", tiny_tokenizer(Path())] if name == "chat" else []
    assert main(["convert", "in", *words, "-o", "out.jsonl"]) == 0
    source = open_trace("in", about=About(tokenizer=words[1] if words else None))
    same(source, open_trace("out.jsonl"))


def test_all_that_a_row_has_survives_a_conversion() -> None:
    rows = [
        Row(1_500_000, 40, 3, (5, 6, 7), "x", -1, "s", -4),
        Row(2_000_000, 33, 1, (5, 6, 9), "y", -1, None),
        Row(7, 48, 2, (5, 6, 8), "x", 0, None, 9),
    ]
    made_of = Format("", lambda head: True, lambda lines, about: iter(rows))
    about = About(block_size=16)
    trace = reading.read([Lines("rows", [b"x"])], made_of, "drawn", "rows", about)
    made = parse(Lines("native", [line.encode() for line in native.texts(trace, {})]))
    same(trace, made)
    assert [job.session for job in made.jobs] == [0, -1, 0]
    chains = [made.paged(16).chain(job).tolist() for job in made.jobs]
    assert chains == [[0, 1, 2], [3, 4, 5], [0, 1, 6]]


def made(words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and records. words: a generator and its options."""
    name, *rest = words.split()
    options = GENERATORS[name].read(rest)
    header, *records = map(json.loads, text(name, options))
    parse(Lines(name, as_lines([header, *records])))
    return header, records


def test_bursts_send_each_round_at_once_in_one_order() -> None:
    header, records = made("shared-prefix --bursts --groups 3 --prompts 2 --rounds 2 --seed 1")
    assert (header["sender"]["round_barrier"], header["sender"]["barrier_pause_ms"]) == (True, 1000)
    assert [record.get("after", -1) for record in records] == [-1] * 6 + [0] * 6
    assert [record["input"] for record in records[:6]] == [
        record["input"] for record in records[6:]
    ]
    assert len({record["output"][0] for record in records}) == 12
