"""Every planted bug has a stored tape, which fails with the bug planted and passes without it.

How it fails does not matter here: by a check, the specification, an assert or the content. Tapes
are played alone by `hicache fuzz --replay FILE`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes import tape as tapes
from invariants.planted.base import names, planted

OPS = load()
STORED = Path(__file__).parents[1] / "corpus" / "planted"
# It shows only between two processes with different hash seeds: tests/traces/test_plant.py.
WITHOUT_A_TAPE = {"victims-follow-a-set"}
BUGS = [name for name in names() if name not in WITHOUT_A_TAPE]


def test_every_bug_has_a_tape_and_every_tape_a_bug() -> None:
    assert sorted(path.stem for path in STORED.iterdir()) == BUGS


@pytest.mark.one_in(64)
@pytest.mark.parametrize("name", BUGS)
def test_a_tape_fails_with_its_bug_and_passes_without(name: str) -> None:
    tape = tapes.read(STORED / f"{name}.jsonl")
    assert tape.notes["plant"] == name
    with planted(name):
        assert replay(tape, OPS).failure is not None
    failure = replay(tape, OPS).failure
    assert failure is None, failure
