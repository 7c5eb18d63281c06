"""The harness for other people's caches: literal sequences on the cache of docs/fuzz_your_cache.md,
engines that lie, and what was found in SGLang and vLLM."""

from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from invariants.fuzz.play import Played, TargetPlayer
from invariants.fuzz.sequence import loads, read
from tests.mine import kind as radix

from .playing import HERE, ROOT, same

CORPUS = ROOT / "tests/corpus/engines"
ENGINES = ("sglang", "vllm")
FOUND = {
    f"{path.parent.name}/{path.stem}": path
    for engine in ENGINES
    for path in CORPUS.glob(f"{engine}/*.sequence")
}
with TemporaryDirectory() as made:
    TARGET: Any = radix(Path(made))
SEQUENCES = (HERE / "engines.sequences").read_text().split("\n\n")


def played(kind: Any, text: str) -> Played:
    """A sequence on an engine. Its laws are asked after every operation."""
    sequence = loads(text)
    return TargetPlayer(kind, sequence.target, sequence.release, lambda file: "").replay(sequence)


@pytest.mark.parametrize("number", range(len(SEQUENCES)))
def test_a_sequence_on_a_cache_of_ones_own(number: int) -> None:
    """No law is broken, and every answer is the recorded one."""
    outcome = played(TARGET, SEQUENCES[number])
    assert outcome.failure is None
    assert outcome.player is not None
    answers = sha256(repr(outcome.player.answers).encode()).hexdigest()
    same("engines", f"sequence {number}", [answers, dict(sorted((+outcome.player.counts).items()))])


def test_no_finding_is_lost() -> None:
    same(
        "engines", "found", {name: read(path).notes["kind"] for name, path in sorted(FOUND.items())}
    )
