"""A request that the device cannot hold: one error whose hint is enough."""

from __future__ import annotations

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
        f"--device-pages 8 --engine vllm?token_budget=256 {NO_HOST}",
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
    for option, value in re.findall(r"(--[a-z-]+) ([\w.,=-]+)", said):
        if option in result:
            result[result.index(option) + 1] = value
        else:
            result += [option, value]
    assert result != given, message
    return result


@pytest.mark.parametrize("mode", ["timed", "hits"])
@pytest.mark.parametrize("trace", [known_tokens, known_blocks])
@pytest.mark.parametrize("components", ["full", "full,swa", "full,swa,mamba"])
def test_following_the_hints_ends_in_a_replay(
    mode: str, trace: Any, components: str, tmp_path: Path, capsys: Capsys
) -> None:
    path = trace(tmp_path / "trace.jsonl")
    base = ["replay", path, "--mode", mode, "--page-size", "64", "--check", "off"]
    tight = {
        components,
        components.replace("swa", "swa=64"),
        components.replace("mamba", "mamba=1"),
    }
    for size in SMALL[mode]:
        for pools in tight:
            given = [*base, *size.split(), "--components", pools]
            capsys.readouterr()
            assert (code := main(given)) == 2, given
            for _ in range(4):  # at most one for each pool, and one for the window
                given = hint_of(capsys.readouterr().err, given)
                if (code := main(given)) == 0:
                    break
            assert code == 0, given
