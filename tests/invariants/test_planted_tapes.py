"""Every planted bug has a stored tape, which fails with the bug planted and passes without it.

How it fails does not matter here: by a check, the specification, an assert or the content. Tapes
are found and shrunk by `hicache mutants --store`, and played alone by `hicache fuzz --replay FILE`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes import tape as tapes
from invariants.planted.base import names, planted
from traces.mutants.stored import STORED, StoreJob, path_of, work

OPS = load()
# It shows only between two processes with different hash seeds: tests/traces/test_plant.py.
WITHOUT_A_TAPE = {"victims-follow-a-set"}
BUGS = [name for name in names() if name not in WITHOUT_A_TAPE]


def test_every_bug_has_a_tape_and_every_tape_a_bug() -> None:
    assert sorted(path.stem for path in STORED.iterdir()) == BUGS


@pytest.mark.one_in(64)
@pytest.mark.parametrize("name", BUGS)
def test_a_tape_fails_with_its_bug_and_passes_without(name: str) -> None:
    tape = tapes.read(path_of(name))
    assert tape.notes["plant"] == name
    with planted(name):
        assert replay(tape, OPS).failure is not None, "hicache mutants --store --only " + name
    failure = replay(tape, OPS).failure
    assert failure is None, failure


@pytest.mark.one_in(16)
def test_a_tape_is_hunted_and_stored(tmp_path: Path) -> None:
    name = "arrival-is-not-answered"
    assert work(StoreJob(name, 1_000, tmp_path)) == (name, True)
    tape = tapes.read(path_of(name, tmp_path))
    assert (tape.notes["plant"], len(tape.entries)) == (name, 1)
    with planted(name):
        assert replay(tape, OPS).failure is not None
    assert work(StoreJob(*WITHOUT_A_TAPE, 1_000, tmp_path)) == (*WITHOUT_A_TAPE, False)
