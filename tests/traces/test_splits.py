"""`hicache size --accelerators`: which split serves most, and what binds each; bad input."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main
from traces.sizing.candidates import Candidate
from traces.sizing.splits import Split
from traces.sizing.splits_shown import binds

from .rig import Capsys, mooncake, write
from .test_json_docs import compare

pytestmark = pytest.mark.usefixtures("here")
LIMITS = ["--slo", "ttft=150ms,tpot=30ms"]


def trace(folder: Path, requests: int = 60) -> str:
    lines = (
        mooncake([n % 7, 100 + n, 200 + n, *range(300 * n, 300 * n + 5)], timestamp=400 * n)
        for n in range(1, requests + 1)
    )
    return str(write(folder / "trace.jsonl", *(one | {"output_length": 9} for one in lines)))


def sized(folder: Path, *more: str) -> dict[str, Any]:
    out = folder / "out.json"
    words = [trace(folder), *LIMITS, "--jobs", "1", "--json", str(out), *more]
    assert main(["size", *words]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.one_in(16)
def test_each_split_serves_what_its_replay_serves_and_no_more(tmp_path: Path) -> None:
    found = sized(tmp_path, "--accelerators", "4", "--pp", "1,2", "--host-bytes", "64GB")
    compare("hicache size --accelerators", [found])
    splits = found["splits"]
    shapes = sorted((one["pp"], one["tp"], one["replicas"]) for one in splits)
    assert shapes == [(1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1)]
    assert {one["host_bytes"] * one["replicas"] for one in splits} == {64 * 10**9}
    served = [one["served"] for one in splits]
    assert served == sorted(served, reverse=True)
    assert found["conclusions"][0].startswith(f"{splits[0]['label']} serves most: {served[0]:g} x")
    for one in splits:
        assert one["refused"] <= one["served"] * 1.051
        assert one["attained_rate"] >= 0.9
        assert one["binds"][0] in ("ttft", "tpot")
        for load, serves in ((one["served"], True), (one["refused"], False)):
            words = [
                "--tp",
                str(one["tp"]),
                "--pp",
                str(one["pp"]),
                "--speed",
                f"{load:g}",
                "--spread",
                "--seed",
                "1",
            ]
            words += ["--replicas", str(one["replicas"])] if one["replicas"] > 1 else []
            words += ["--host-bytes", str(one["host_bytes"]), "--json", "again.json"]
            assert main(["replay", found["trace"]["path"], *LIMITS, *words]) == 0
            again = json.loads(Path("again.json").read_text())
            assert (again["slo"]["attained_rate"] >= 0.9) == serves


@pytest.mark.one_in(16)
def test_a_split_that_cannot_hold_the_model_or_is_too_slow_says_so(tmp_path: Path) -> None:
    words = ["--model", "llama-3.1-70b", "--accelerators", "4", "--slo", "tpot=12ms"]
    found = sized(tmp_path, *words)
    [refused] = found["refused"]
    assert refused["machines"] == ["1 x h100"]
    assert "141.1 GB of weights on each rank" in refused["reason"]
    slow = next(one for one in found["splits"] if one["tp"] == 2)
    assert (slow["served"], slow["binds"]) == (None, ["tpot", "idle"])
    assert "100.0 % miss TPOT" in slow["why"]


def test_what_binds() -> None:
    def split(exchanges: tuple[float, float] | None, pool: bool = False, **missed: int) -> Split:
        over = {"slo": {"missed": {"itl": None, **missed}}, "whole": {"requests": 10}}
        loads = Fraction(1), Fraction(2)
        return Split(Candidate("h100", 2, 1), 1, None, *loads, None, over, exchanges, pool)

    assert binds(split(None, ttft=2, tpot=1)) == ["ttft"]
    assert binds(split((0.1, 0.3), ttft=2, tpot=1)) == ["ttft"]
    assert binds(split((0.1, 0.3), ttft=1, tpot=2)) == ["tpot", "exchanges"]
    assert binds(split((0.3, 0.1), pool=True, ttft=2)) == ["ttft", "pool", "exchanges"]
    idle = split(None, tpot=4).over
    assert binds(Split(Candidate("h100", 2, 1), 1, idle)) == ["tpot", "idle"]
    assert binds(Split(Candidate("h100", 2, 1), 1, idle, Fraction(3))) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--accelerators 4", "--accelerators: expected --slo, the limits that requests must keep"),
        ("--accelerators 4 --slo ttft=1s --speed 2", "--speed: --accelerators searches the"),
        ("--accelerators 4 --slo ttft=1s --concurrency 2", "--concurrency: --accelerators sear"),
        ("--accelerators 4 --slo ttft=1s --draws 2", "--draws: --accelerators compares splits"),
        ("--accelerators 4 --slo ttft=1s --tp 3", "--accelerators: expected --tp times --pp"),
        ("--accelerators 4 --slo ttft=1s --hardware h100,h200", "--hardware: expected one value"),
        ("--accelerators 4 --slo ttft=1s --host-bytes 1GB,2GB", "--host-bytes: expected one value"),
        ("--accelerators 3 --slo ttft=1s --tp 3", "--tp: expected a divisor of the 32 query heads"),
        ("--accelerators 4 --host-only", "--accelerators: --host-only replays each size once"),
    ],
)
def test_bad_input_is_one_line(words: str, told: str, tmp_path: Path, capsys: Capsys) -> None:
    assert main(["size", trace(tmp_path, 3), *words.split()]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.removeprefix("hicache: ").startswith(told)
