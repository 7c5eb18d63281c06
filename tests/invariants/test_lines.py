"""Tapes that were damaged: each is played or refused in one short printable line, nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from hicache.files import show
from invariants.fuzz import sequence as tapes
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.hand import FAULTS
from invariants.fuzz.hicache.operations import OPERATIONS

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 1.5, 1 << 31, 1 << 63, 10**40, float("nan"), float("inf")),
    *("", "x", "\ud800", "a\nb", "full", "x" * 999, [], [[]], [0], [1, 2], {}, {"a": 1}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place within it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, held in inner:
        yield (*path, key)
        if isinstance(held, dict | list):
            yield from places(held, (*path, key))


def damaged(text: str, draws: random.Random) -> str:
    """A few bytes changed, left out or said again; or one value another, or gone."""
    if draws.random() < 0.3:
        at, size = draws.randrange(len(text)), draws.randint(1, 30)
        again = text[draws.randrange(len(text)) :][:size]
        return text[:at] + draws.choice(["", again, chr(draws.randrange(0x3000))]) + text[at + 1 :]
    lines = text.splitlines()
    at = draws.choice([0, draws.randrange(len(lines))])
    row = json.loads(lines[at])
    *path, last = draws.choice(list(places(row)))
    inner = row
    for key in path:
        inner = inner[key]
    if draws.random() < 0.15:
        del inner[last]
    else:
        inner[last] = draws.choice(ODD)
    return "\n".join([*lines[:at], json.dumps(row), *lines[at + 1 :], ""])


def test_a_damaged_tape_is_played_or_refused_in_one_line() -> None:
    draws, ops = random.Random(7), OPERATIONS
    texts = [path.read_text() for path in sorted(CORPUS.glob("*.jsonl"))[:9]]
    played = refused = 0
    for _ in range(400):
        try:
            tape = tapes.loads(damaged(draws.choice(texts), draws), "some.jsonl")
            tapes.check(tape, ops, "some.jsonl", FAULTS)
        except CallerError as error:
            said = str(error)
            assert said.isprintable()
            assert len(said) < 480
            assert said.startswith("some.jsonl")
            assert "expected" in said
            assert "found" in said
            refused += 1
        else:
            assert play.replay(tape, ops).failure is None
            played += 1
    assert refused > 250
    assert played > 12


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("short", '"short"'),
        ("a" * 99, '"' + "a" * 56 + "..."),
        ("a\nb\x1b[31m", r'"a\nb\u001b[31m"'),
        ("\ud800ü", r'"\ud800\u00fc"'),
        (True, "true"),
        ([1] * 99, "a list of 99"),
        (10**99, "an integer of 329 bits"),
    ],
)
def test_shown_values_are_short_and_printable(value: object, said: str) -> None:
    assert show(value) == said
