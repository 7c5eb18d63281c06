"""Recorded decisions: each tape carries the digest of all that the core answered to it, and of its
pools. What is seen here and breaks no rule was changed on purpose, or by mistake: only a person can
tell. On purpose: `hicache mutants --record`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache.core.radix import lru
from invariants.fuzz.tapes import corpus
from invariants.mutants import decisions
from traces.mutants import recorded

from .rig import Patch

TAPES = corpus.paths(recorded.RECORDED)


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_the_core_decides_as_recorded(path: Path) -> None:
    tape = corpus.read(path)
    outcome, digest, _ = decisions.play(tape, checked=False)
    assert outcome.failure is None
    assert digest == tape.notes[decisions.NOTE], "meant so? hicache mutants --record"


def test_another_eviction_order_is_found_and_can_be_recorded(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    tape = corpus.read(TAPES[0])
    there = corpus.add(tmp_path, tape)
    assert recorded.record(tmp_path) == []
    plain = lru.kind_now
    monkeypatch.setattr(lru, "next_victim", lambda queues, policy: None)
    for name in ("eviction", "reclaim"):
        monkeypatch.setattr(f"hicache.core.{name}.next_victim", lambda queues, policy: None)
    assert lru.kind_now is plain
    (changed,) = recorded.record(tmp_path)
    assert changed != there
    assert corpus.paths(tmp_path) == [changed]
    assert corpus.read(changed).entries == tape.entries
