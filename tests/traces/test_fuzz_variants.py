"""`hicache fuzz` on devices with real bytes, with twins, and with every transfer failing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache.core.types import Pages, Tier
from hicache.memory.arena import Arena
from invariants.fuzz import play
from invariants.fuzz.content import Content
from invariants.fuzz.device import real
from invariants.fuzz.executors import on_device
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base as operations
from invariants.fuzz.swarm import draw_swarm
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape
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


def test_sequences_run_on_the_cpu_device_and_compare_bytes() -> None:
    assert fuzz("--device", "cpu", "--seed", "3", "--sequences", "3", "--json", "out.json") == 0
    told = json.loads(Path("out.json").read_text())
    assert told["settings"]["device"] == "cpu"
    outcome = play.replay(drawn(3, "cpu"), OPS)
    assert outcome.failure is None
    assert outcome.hand.rig.device.compared > 50  # type: ignore[attr-defined]


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


def test_a_note_with_an_unknown_twin_is_refused(capsys: Capsys) -> None:
    tapes.write(Path("t.jsonl"), replace(drawn(2), notes={"twin": "of nobody"}))
    assert main(["fuzz", "--replay", "t.jsonl"]) == 2
    told = capsys.readouterr().err
    assert "expected the name of a twin" in told
    assert told.count("\n") == 1
