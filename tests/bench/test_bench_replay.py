"""The command as its users run it, compiled and from the source: CPU time of fresh processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hicache.compiled import finder
from tests.conversation import conversation

TIMED = ("--model", "llama-3.1-8b", "--hardware", "h100", "--device-tokens", "1M")


def run(tmp_path: Path, build: str, *options: str) -> tuple[str, float]:
    """The digest of one `hicache replay`, and its CPU seconds."""
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "hicache", "replay", str(conversation()), *options]
    environment = dict(os.environ, HICACHE_BUILD=build)
    before = sum(os.times()[2:4])
    subprocess.run(
        [*command, "--json", str(out)], env=environment, stdout=subprocess.DEVNULL, check=True
    )
    return json.loads(out.read_text())["digest"], sum(os.times()[2:4]) - before


@pytest.mark.skipif(not finder.usable(), reason="no compiled build of this source: make compiled")
@pytest.mark.parametrize(("check", "limit"), [("off", 100_000), ("every", 1500)])
def test_compiled_and_pure(benchmark: Any, tmp_path: Path, check: str, limit: int) -> None:
    """Pairs in turn."""
    options = (*TIMED, "--check", check, "--limit", str(limit))

    def pairs() -> list[float]:
        ratios = []
        for _ in range(3):
            (digest, spent), (same, pure) = (
                run(tmp_path, build, *options) for build in ("compiled", "pure")
            )
            assert digest == same
            ratios.append(spent / pure)
        return ratios

    ratios = benchmark.pedantic(pairs, rounds=1, iterations=1)
    shown = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
    print(f"timed, --check {check}, compiled / pure, CPU time, 3 pairs: {shown}, target <= 0.6")
