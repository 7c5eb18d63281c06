"""`hicache fuzz` on devices with real bytes, with twins, and with every transfer failing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache.core.types import Pages, Tier
from hicache.devices.base import CopyJob, Direction, Stream
from hicache.devices.cpu import CpuDevice
from hicache.memory.arena import Arena
from invariants.fuzz import play, variants
from invariants.fuzz.content import Content
from invariants.fuzz.device import real
from invariants.fuzz.executors import on_device, settings_of
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base as operations
from invariants.fuzz.swarm import draw_swarm
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape
from tests.planted import planted
from traces.cli import main

from .rig import Capsys, Patch

pytestmark = pytest.mark.usefixtures("here")

OPS = operations.load()
CORPUS = sorted((Path(__file__).resolve().parents[1] / "corpus").glob("*.jsonl"))
WITHOUT_STORAGE = next(path for path in CORPUS if '"storage":true' not in path.read_text())
SMALL = ("--operations", "40", "--jobs", "1")


def fuzz(*options: str) -> int:
    return main(["fuzz", *SMALL, *options])


def found() -> Path:
    """The only tape of the failures."""
    (path,) = Path("fuzz-failures").glob("*.jsonl")
    return path


def drawn(seed: int, executor: str = "") -> Tape:
    return play.generate(
        draw_swarm(seed, weights_of(OPS), executor=executor), OPS, seed, 40, "off"
    ).tape


# -- devices


@pytest.mark.one_in(32)
def test_sequences_run_on_the_cpu_device_and_compare_bytes() -> None:
    assert fuzz("--device", "cpu", "--seed", "3", "--sequences", "3", "--json", "out.json") == 0
    told = json.loads(Path("out.json").read_text())
    assert told["settings"]["device"] == "cpu"
    outcome = play.replay(drawn(3, "cpu"), OPS)
    assert outcome.failure is None
    assert outcome.hand.rig.device.compared > 50  # type: ignore[attr-defined]


@pytest.mark.one_in(16)
def test_a_device_with_real_bytes_changes_no_decision() -> None:
    simulated, cpu = (play.replay(drawn(3, name), OPS) for name in ("device", "cpu"))
    assert simulated.tape.entries == cpu.tape.entries
    assert simulated.hand.counts == cpu.hand.counts
    assert simulated.hand.now == cpu.hand.now


@pytest.mark.one_in(16)
def test_a_copy_that_the_tape_lets_fail_is_not_made_with_real_bytes(monkeypatch: Patch) -> None:
    """Bytes on the simulated link are those of its copies that did not fail."""
    made: Counter[Direction] = Counter()
    copy = CpuDevice.copy

    def noted(self: CpuDevice, stream: Stream, job: CopyJob) -> None:
        made[job.direction] += len(job.source) * (job.layers[1] - job.layers[0])
        copy(self, stream, job)

    monkeypatch.setattr(CpuDevice, "copy", noted)
    tape = drawn(11, "cpu")  # with enough transfers
    settings = settings_of(tape.executor)
    assert settings is not None
    failed = variants.failed_transfers(play.replay(tape, OPS), OPS)
    for _ in range(8):
        made.clear()
        outcome = next(failed)
        assert outcome.failure is None
        [link] = outcome.hand.rig.device._links  # type: ignore[attr-defined]
        sent = {way: link.bytes_moved(way) for way in Direction}
        assert {way: made[way] * settings.page_ns for way in Direction} == sent


def wrong_page(copy: Callable[..., None]) -> Callable[..., None]:
    """The copy of the last page goes to the page of the first."""

    def wrong(
        self: Arena,
        component: str,
        source: tuple[Tier, Pages],
        target: tuple[Tier, Pages],
        layers: tuple[int, int],
    ) -> None:
        pages = np.append(target[1][:-1], target[1][0])
        copy(self, component, source, (target[0], pages), layers)

    return wrong


@pytest.mark.one_in(16)
def test_a_wrong_page_on_the_cpu_device_is_found_and_replays(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Arena, "copy", wrong_page(Arena.copy))
        assert fuzz("--device", "cpu", "--seed", "3", "--sequences", "3") == 12
        tape = str(found())
        assert "12-bytes-on-cpu" in tape
        text = Path(tape).with_suffix(".txt").read_text()
        assert text.startswith("cpu device, ")
        assert ": expected page " in text
        assert text.splitlines()[-1] == f"replay: hicache fuzz --replay {tape}"
        capsys.readouterr()
        assert main(["fuzz", "--replay", tape]) == 12
        assert "12 BYTES on cpu" in capsys.readouterr().out
        assert main(["fuzz", "--device", "cpu", "--replay", str(WITHOUT_STORAGE)]) in (0, 12)
    assert main(["fuzz", "--replay", tape]) == 0


@pytest.mark.one_in(16)
def test_wrong_bytes_of_a_write_are_found_at_rest(monkeypatch: Patch) -> None:
    """The copies are right; another page is written by each of them."""
    copy = Arena.copy

    def wide(self: Arena, component: str, source: Any, target: Any, layers: Any) -> None:
        copy(self, component, source, target, layers)
        for pool in self.pools(Tier.HOST, component):
            pool.view[:, -1] = 0

    monkeypatch.setattr(Arena, "copy", wide)
    failure = play.replay(drawn(3, "cpu"), OPS).failure
    assert failure is not None
    assert (failure.code, failure.kind) == (12, "BYTES on cpu")


@pytest.mark.one_in(32)
def test_tapes_of_replies_and_of_the_simulated_device_run_on_the_cpu_device(capsys: Capsys) -> None:
    for tape in (drawn(2, "replies"), drawn(2, "device")):
        tapes.write(Path("t.jsonl"), replace(tape, pairs=False, ranks=1))
        assert main(["fuzz", "--device", "cpu", "--replay", "t.jsonl"]) == 0
        assert "events on the cpu device: no failure" in capsys.readouterr().out


@pytest.mark.one_in(32)
@pytest.mark.parametrize("seed", [1, 4])
def test_tapes_run_on_the_cuda_device(seed: int, monkeypatch: Patch) -> None:
    """Without CUDA, on an accelerator that acts at once; the seeds choose plain copies."""
    pytest.importorskip("torch", exc_type=ImportError)
    at_once = pytest.importorskip("tests.devices.at_once", exc_type=ImportError)
    cuda = pytest.importorskip("hicache.devices.cuda", exc_type=ImportError)
    monkeypatch.setattr(
        cuda, "CudaDevice", partial(cuda.CudaDevice, accelerator=at_once.AtOnce(late=True))
    )
    tape = drawn(3, "device")
    tape = replace(tape, executor=on_device(tape.executor, "cuda"), seed=seed)
    outcome = play.replay(tape, OPS)
    assert outcome.failure is None
    assert outcome.hand.rig.device.compared > 50  # type: ignore[attr-defined]


@pytest.mark.one_in(32)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--device", "gpu"), "--device: expected one of cpu, cuda, found 'gpu'"),
        (("--device", "cpu", "--ranks", "2"), "--device: expected one rank, found 2"),
        (("--fail-each-transfer", "--replay", "ranks.jsonl"), "--replay takes no --twins"),
        (("--device", "cpu", "--replay", "ranks.jsonl"), "found 2 ranks in ranks.jsonl"),
        (("--device", "cpu", "--replay", "pairs.jsonl"), "found token pairs in pairs.jsonl"),
    ],
)
def test_options_that_exclude_each_other(
    options: tuple[str, ...], said: str, capsys: Capsys
) -> None:
    tape = replace(drawn(2, "replies"), pairs=False, ranks=1)
    tapes.write(Path("ranks.jsonl"), replace(tape, ranks=2))
    tapes.write(Path("pairs.jsonl"), replace(tape, pairs=True))
    assert main(["fuzz", *options]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_a_missing_device_is_one_line(monkeypatch: Patch, capsys: Capsys) -> None:
    loaded = real.registry.load

    def load(package: str, name: str) -> Any:
        if package == "hicache.devices":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return loaded(package, name)

    monkeypatch.setattr(real.registry, "load", load)
    assert fuzz("--device", "cuda", "--sequences", "1") == 2
    told = capsys.readouterr().err
    assert told == (
        "hicache: device cuda: expected the package torch, found none; install it "
        "(in a clone: .venv/bin/pip install -e '.[torch]'), or use --device cpu\n"
    )


# -- twins and failing transfers


def otherwise_by_page(said: Callable[..., tuple[int, ...]]) -> Callable[..., tuple[int, ...]]:
    def other(self: Content, table: Pages, length: int) -> tuple[int, ...]:
        answer = said(self, table, length)
        return answer if self.page > 1 else (answer[0] + 1, *answer[1:])

    return other


@pytest.mark.one_in(16)
def test_an_answer_that_only_a_twin_gives_is_found_shrunk_and_replayed(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Content, "said", otherwise_by_page(Content.said))
        assert fuzz("--seed", "4", "--sequences", "1") == 0
        assert fuzz("--seed", "4", "--sequences", "1", "--twins", "--json", "out.json") == 12
        told = json.loads(Path("out.json").read_text())
        assert told["variants"] >= 5
        assert [one["kind"] for one in told["failures"]] == ["TWIN page of 1"]
        tape = str(found())
        capsys.readouterr()
        assert main(["fuzz", "--replay", tape]) == 12
        said = capsys.readouterr().out
        assert "TWIN: A request gets the same content under every setting." in said
        assert "in the twin 'page of 1'" in said
        assert f"replay: hicache fuzz --replay {tape}" in said
    assert main(["fuzz", "--replay", tape]) == 0


@pytest.mark.one_in(32)
def test_a_failure_of_a_twin_is_saved_as_the_tape_of_the_twin(monkeypatch: Patch) -> None:
    said = Content.said

    def broken(self: Content, table: Pages, length: int) -> tuple[int, ...]:
        assert self.page > 1, "a defect of small pages"
        return said(self, table, length)

    monkeypatch.setattr(Content, "said", broken)
    assert fuzz("--seed", "4", "--sequences", "1", "--twins") == 10
    tape = tapes.read(found())
    assert tape.config.page_size == 1
    assert "twin" not in tape.notes


def test_a_note_with_an_unknown_twin_is_refused(capsys: Capsys) -> None:
    tapes.write(Path("t.jsonl"), replace(drawn(2), notes={"twin": "of nobody"}))
    assert main(["fuzz", "--replay", "t.jsonl"]) == 2
    told = capsys.readouterr().err
    assert "expected the name of a twin" in told
    assert told.count("\n") == 1


@pytest.mark.one_in(64)
@pytest.mark.parametrize("bug", ["failed-backup-keeps-its-lock", "failed-load-is-adopted"])
def test_failing_each_transfer_finds_what_a_calm_sequence_does_not(bug: str) -> None:
    options = ("--seed", "7", "--sequences", "1")
    with planted(bug):
        assert fuzz(*options) == 0
        code = fuzz(*options, "--fail-each-transfer")
        assert code in (11, 12)
        assert main(["fuzz", "--replay", str(found())]) == code
