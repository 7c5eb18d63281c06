"""The tapes that are kept with the tests, and what the core decided on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from invariants.fuzz.tapes import corpus
from invariants.fuzz.tapes.tape import Tape
from invariants.mutants import decisions

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "corpus"
RECORDED = CORPUS / "decisions"


def corpus_tapes() -> Iterator[Tape]:
    """The tapes that are always played, even if other tapes run the same lines."""
    return (corpus.read(path) for folder in (CORPUS, RECORDED) for path in corpus.paths(folder))


def record(folder: Path = RECORDED) -> list[Path]:
    """Stores the decisions of the current core in the recorded tapes; returns those changed."""
    changed = []
    for path in corpus.paths(folder):
        tape = corpus.read(path)
        _, digest, _ = decisions.play(tape, checked=False)
        if tape.notes.get(decisions.NOTE) != digest:
            changed.append(corpus.add(folder, decisions.noted(tape, decisions=digest)))
            path.unlink()
    return changed
