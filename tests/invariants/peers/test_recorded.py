"""Recorded engines: the laws judge what SGLang and vLLM once answered, without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from invariants.peers.play import Player
from invariants.peers.recorded import recorded
from invariants.peers.tape import read

CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "peers"
# What `hicache peers play TAPE --record FILE` wrote, and how the tape failed.
RECORDED = {"vllm_scheduler/window-tail-of-finished": "BYTES host window"}


@pytest.mark.parametrize("name", RECORDED)
def test_the_laws_find_in_a_recording_what_they_found_in_the_engine(name: str) -> None:
    folder, _, stem = name.partition("/")
    text = (CORPUS / "recorded" / f"{stem}.jsonl").read_text()
    tape = read(CORPUS / folder / f"{stem}.tape")
    player = Player(recorded(text), tape.peer, tape.release, lambda file: "")
    failure = player.replay(tape).failure
    assert failure is not None
    assert failure.kind == RECORDED[name]
