"""What golden tests share: they run the `hicache` command, and compare what it found with what was
recorded in a file beside them. HICACHE_GOLDEN=record writes these files anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.traces.rig import ROOT, document
from traces.cli import main

__all__ = ["ROOT", "document"]

HERE = Path(__file__).parent


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


def same(name: str, key: str, found: Any) -> None:
    """Compare with what is recorded in the file of this name under this key. Numbers must be equal
    to the last bit."""
    file = HERE / f"{name}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    found = json.loads(json.dumps(found))
    if os.environ.get("HICACHE_GOLDEN") == "record":
        rows = [
            f"{json.dumps(one)}: {json.dumps(it)}"
            for one, it in sorted({**known, key: found}.items())
        ]
        file.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        return
    assert found == known[key], f"{name}.json, {key}"


def some(document: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The values at these places, such as "whole.hit_tokens"."""
    found = {}
    for key in keys:
        value: Any = document
        for part in key.split("."):
            value = value[part]
        found[key] = value
    return found
