"""A request that the device cannot hold: one error whose hint is enough, or it is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .rig import HEADER, Capsys, mooncake, native, write

LENGTHS = (300, 700, 2900, 40, 1500, 600)
NO_HOST = "--host-ratio 0"
SMALL = {
    "timed": (
        "--device-tokens 256 --host-ratio 0.5 --write-policy write_back",
        f"--device-pages 8 --token-budget 256 {NO_HOST}",
    ),
    "hits": ("--device-tokens 256 --host-ratio 0.5", f"--device-pages 4 {NO_HOST}"),
}


def known_tokens(path: Path) -> str:
    """A trace with tokens: a long request, and conversations of two turns."""
    turns = []
    for number, length in enumerate(LENGTHS):
        turns.append(native((f"a{number}", length), output=(f"b{number}", 90)))
        history = (f"a{number}", length), (f"b{number}", 90), (f"c{number}", 30)
        turns.append(native(*history, output=(f"d{number}", 50), after=2 * number))
    return str(write(path, HEADER, *turns))


def known_blocks(path: Path) -> str:
    """A trace with blocks, whose output is not known."""
    ids = iter(range(100))
    records = [
        mooncake([next(ids) for _ in range(-(-length // 512))], length, output_length=130)
        for length in LENGTHS
    ]
    return str(write(path, *records))


def hint_of(message: str, given: list[str]) -> list[str]:
    """The options with those that the message says to give."""
    said = message.partition("; give ")[2].partition(", or ")[0]
    result = list(given)
    for option, value in re.findall(r"(--[a-z-]+) ([\w.-]+)", said):
        if option in result:
            result[result.index(option) + 1] = value
        else:
            result += [option, value]
    assert result != given, message
    return result


@pytest.mark.parametrize("mode", ["timed", "hits"])
@pytest.mark.parametrize("trace", [known_tokens, known_blocks])
@pytest.mark.parametrize(
    "components", ["full", "full,swa --swa-window 200", "full,swa,mamba --swa-window 100"]
)
def test_following_the_hints_ends_in_a_replay(
    mode: str, trace: Any, components: str, tmp_path: Path, capsys: Capsys
) -> None:
    path = trace(tmp_path / "trace.jsonl")
    base = ["replay", path, "--mode", mode, "--page-size", "64", "--check", "off"]
    base += ["--components", *components.split()]
    tight = ["", "--swa-tokens 64"] if "swa" in components else [""]
    tight += ["--mamba-states 1"] if "mamba" in components else []
    for size in SMALL[mode]:
        for more in tight:
            given = [*base, *size.split(), *more.split()]
            capsys.readouterr()
            code = main(given)
            if mode == "hits" and not code:  # some fit, and the others do without the cache
                assert "not cached" in capsys.readouterr().out
                continue
            assert code == 2, given
            for _ in range(3):  # one for each pool
                given = hint_of(capsys.readouterr().err, given)
                if (code := main(given)) == 0:
                    break
            assert code == 0, given


@pytest.mark.parametrize("trace", [known_tokens, known_blocks])
def test_hits_mode_computes_what_does_not_fit_without_the_cache(
    trace: Any, tmp_path: Path, capsys: Capsys
) -> None:
    """The others hit as if these were not there, all figures count them, and the checks agree."""
    path, out = trace(tmp_path / "trace.jsonl"), tmp_path / "out.json"
    lines = tmp_path / "lines.jsonl"
    given = ["replay", path, "--mode", "hits", "--device-tokens", "1568", "--check", "every"]
    files = ["--json", str(out), "--requests", str(lines)]
    assert main([*given, "--skip-too-large", *files]) == 0
    without = json.loads(out.read_text())
    assert main([*given, *files]) == 0
    report = capsys.readouterr().out
    found = json.loads(out.read_text())
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    large = [row for row in rows if row["hit_ended_by"] == "too_large"]
    tokens = sum(row["input_tokens"] for row in large)
    assert found["uncached"] == {"requests": len(large), "input_tokens": tokens}
    assert 0 < len(large) < len(rows) == found["whole"]["requests"] == found["trace"]["requests"]
    assert f"not cached  {len(large)} request" in report
    assert all(row["computed_tokens"] == row["input_tokens"] for row in large)
    assert found["skipped"]["requests"] == without["uncached"]["requests"] == 0
    followers = found["whole"]["requests"] - without["whole"]["requests"] - len(large)
    if not followers:
        assert found["whole"]["hit_tokens"] == without["whole"]["hit_tokens"]
    assert main([*given[:-2], "--why", str(large[0]["request"])]) == 0
    assert "too large" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["timed", "hits"])
def test_requests_that_are_too_large_are_left_out_and_counted(
    mode: str, tmp_path: Path, capsys: Capsys
) -> None:
    path = known_tokens(tmp_path / "trace.jsonl")
    out = tmp_path / "out.json"
    # 1,500 tokens and 89 of its answer do not fit, so its second turn is left out, too
    options = ["--mode", mode, "--device-tokens", "1568", "--skip-too-large", "--json", str(out)]
    assert main(["replay", path, *options, "--check", "every"]) == 0
    report = capsys.readouterr().out
    found = json.loads(out.read_text())
    whole = 2 * sum(LENGTHS) + 120 * len(LENGTHS)
    assert found["skipped"] == {"requests": 4, "input_tokens": 2900 + 3020 + 1500 + 1620}
    assert found["trace"] == found["trace"] | {"requests": 12, "input_tokens": whole}
    assert found["whole"]["requests"] == 8
    assert found["whole"]["input_tokens"] == whole - 9040
    part = f"4 requests with 9,040 input tokens ({9040 / whole * 100:.1f} %)"
    assert f"skipped {part}, too large" in " ".join(report.split())
    assert found["checks"]["violations"] == 0
    assert sum(turn["requests"] for turn in found["turns"]) == 8
