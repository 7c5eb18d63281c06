"""Small traces and the options of a replay, for the tests of its figures.

Draws are pure functions of their seed. Does not replay anything.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from sim.keyed_draw import draw
from traces.formats._open import parse
from traces.formats.base import Lines, Trace
from traces.replaying.options import ReplayOptions

_PAGE = 16


def blocks(seed: int, count: int, gap_ms: int) -> Trace:
    """A trace of hashed blocks, whose prompts share prefixes. Answers are not identified."""
    lines = []
    for index in range(count):
        depth = 1 + draw(5, seed, index, "depth")
        walk = [draw(2, seed, index % 7, level) for level in range(depth)]
        ids = [
            sum((step + 1) << 2 * at for at, step in enumerate(walk[: end + 1]))
            for end in range(depth)
        ]
        tokens = 512 * (depth - 1) + 1 + draw(512, seed, index, "tokens")
        lines.append(
            {
                "timestamp": index * gap_ms,
                "input_length": tokens,
                "output_length": 1 + draw(40, seed, index, "output"),
                "hash_ids": ids,
            }
        )
    return _parsed(lines)


def talks(seed: int, count: int, gap_ms: int) -> Trace:
    """Conversations in the project's own format: turns that repeat their history, sessions that
    wait, and requests that only queue behind another.
    """
    lines: list[dict[str, Any]] = [{"format": "hicache-trace", "version": 1}]
    history: list[list[list[Any]]] = []
    for index in range(count):
        new = [f"q{index}", 1 + draw(90, seed, index, "new")]
        answer = [f"a{index}", 1 + draw(70, seed, index, "answer")]
        kind = draw(4, seed, index, "kind") if index else 0
        at: dict[str, Any] = {"timestamp": index * gap_ms}
        before: list[list[Any]] = [["system", 40]] if draw(2, seed, index, "system") else []
        if kind:
            after = draw(index, seed, index, "after")
            at = {"after": after, "delay": draw(50, seed, index, "delay")}
            before = history[after] if kind > 1 else before
        prompt = [*before, new]
        history.append([*prompt, answer])
        lines.append({**at, "input": prompt, "output": answer})
    return _parsed(lines)


def _parsed(lines: list[dict[str, Any]]) -> Trace:
    return parse(Lines("trace", [json.dumps(line).encode() + b"\n" for line in lines]))


def options(**given: Any) -> ReplayOptions:
    """Options of a replay, as if nothing else had been given."""
    plain: dict[str, Any] = dict.fromkeys(one.name for one in fields(ReplayOptions))
    plain |= {"mode": "timed", "limit": 0, "skip_too_large": False, "eviction": "lru"}
    plain |= {"page_size": _PAGE, "check": "every", "tp": 1, "pp": 1}
    return ReplayOptions(**{**plain, **given})
