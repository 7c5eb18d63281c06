"""A violation of every code tells what happened, the last operations, and how to repeat it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache.core.actions import Outcome
from hicache.core.core import Core
from hicache.core.events import Event
from hicache.runtime.controller import TransferController
from hicache.runtime.lanes import Lane
from invariants.base import load_check
from invariants.fuzz import play
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base as operations
from invariants.fuzz.swarm import draw_swarm
from sim.device.memory import Memory
from sim.engine.engine import Engine
from tests.planted import BUGS, planted
from traces.cli import main
from traces.devices import device_run

from .rig import Capsys, Patch

OPS = operations.load()


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("stories") / "turns.jsonl")
    assert main(["generate", "multiturn", "--clients", "6", "--rounds", "5", "-o", path]) == 0
    return path


def assert_in_the_core(patch: Patch) -> None:
    handle, seen = Core.handle, []

    def failing(self: Core, event: Event) -> list[Outcome]:
        seen.append(event)
        assert len(seen) < 60
        return handle(self, event)

    patch.setattr(Core, "handle", failing)


def key_error_in_the_simulation(patch: Patch) -> None:
    seen: list[int] = []
    wake = Engine.wake

    def failing(self: Engine) -> None:
        seen.append(1)
        if len(seen) == 60:
            raise KeyError("sequence 7")
        wake(self)

    patch.setattr(Engine, "wake", failing)


def key_error_in_a_check(patch: Patch) -> None:
    kind = type(load_check("lock-bal"))
    seen: list[int] = []

    def failing(self: Any, book: Any, *_: Any) -> None:
        seen.append(1)
        if len(seen) == 200:
            raise KeyError("node 7")

    patch.setattr(kind, "node", failing)


def wrong_bytes(patch: Patch) -> None:
    store = Memory.store

    def torn(self: Memory, place: Any, pages: Any, words: Any, span: Any, block: Any) -> None:
        store(self, place, pages, words, span, block * 0)

    patch.setattr(Memory, "store", torn)


def hazard(patch: Patch) -> None:
    def plant(owner: Any, name: str, replacement: Any) -> None:
        patch.setattr(owner, name, replacement)

    BUGS["backups-do-not-wait-for-passes"](plant)


def no_progress(patch: Patch) -> None:
    patch.setattr(TransferController, "poll", lambda self: [])


@pytest.mark.one_in(32)
@pytest.mark.parametrize(
    ("break_it", "code", "said"),
    [
        (assert_in_the_core, 10, "assert len(seen) < 60"),
        (key_error_in_the_simulation, 10, "KeyError: 'sequence 7'"),
        (key_error_in_a_check, 10, "KeyError: 'node 7'"),
        (wrong_bytes, 12, "exit code 12: wrong bytes"),
        (hazard, 13, "exit code 13: a hazard"),
        (no_progress, 14, "exit code 14: no progress"),
    ],
)
def test_a_replay_tells_its_story(
    break_it: Callable[[Patch], None],
    code: int,
    said: str,
    turns: str,
    monkeypatch: Patch,
    capsys: Capsys,
) -> None:
    break_it(monkeypatch)
    command = ["replay", turns, "--device-tokens", "4K", "--check", "every"]
    assert main(command) == code
    told = capsys.readouterr().err
    assert said in told
    assert "\nstory:\n" in told
    assert "\n    op " in told
    assert "\n    last operation: op " in told
    repeat = f"hicache {' '.join(command)}"
    assert told.endswith(f"{repeat}\n")


def test_without_checks_the_story_says_how_to_get_one(
    turns: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    no_progress(monkeypatch)
    assert main(["replay", turns, "--device-tokens", "4K", "--check", "off"]) == 14
    assert "story: none, since nothing is kept with --check off" in capsys.readouterr().err


def test_a_twin_tells_its_story(
    profile: Path, served: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr(device_run.StandIn, "wrong", lambda self, device: "prefill of request 1")
    command = ["twin", str(served), "--profile", str(profile), "--limit", "3"]
    capsys.readouterr()
    assert main(command) == 12
    told = capsys.readouterr().err
    assert told.startswith("hicache: prefill of request 1\nstory:\n")
    assert "exit code 12: wrong bytes" in told
    assert told.endswith(f"replay: hicache {' '.join(command)}\n")


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("bug", "seed", "code"),
    [
        ("backups-do-not-wait-for-passes", 3, 13),
        ("copy-writes-one-page-too-many", 3, 12),
    ],
)
def test_failures_of_the_fuzzer_that_no_check_raises_have_a_story(
    bug: str, seed: int, code: int
) -> None:
    with planted(bug):
        for number in range(seed, seed + 20):
            swarm = draw_swarm(number, weights_of(OPS), executor="device")
            failure = play.generate(swarm, OPS, number, 80).failure
            if failure is not None and failure.code == code:
                break
    assert failure is not None
    assert failure.code == code
    lines = failure.text.splitlines()
    assert "story:" in lines
    assert any(line.startswith("    op ") for line in lines)
    assert lines[-1] == f"replay: hicache fuzz --seed {number} --sequences 1"


def test_a_transfer_without_a_reply_has_a_story(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Lane, "ended", lambda self: [])
    swarm = draw_swarm(3, weights_of(OPS), executor="device")
    failure = play.generate(replace(swarm, faults=()), OPS, 3, 60).failure
    assert failure is not None
    assert failure.code == 14
    assert "\nstory:\n" in failure.text
    assert "\nreplay: hicache fuzz --seed 3 --sequences 1" in failure.text
