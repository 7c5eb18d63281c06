"""The checks of a device: what they cover and refuse, that they find what is planted, and what
`hicache gpu-check` says where there is no GPU."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import hicache.models as models
from hicache import registry
from hicache.core.types import Pages, Tier
from hicache.devices._accelerator import unusable
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Stream
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import CudaDevice
from hicache.memory import arena, table
from hicache.memory.layouts import BACKENDS, LAYOUTS, Bytes, check, copy_direct, legal
from hicache.models import get
from tests.devices.at_once import AtOnce
from tests.devices.cases import grouped
from traces import cli
from traces.cli import main
from traces.commands import gpu_check
from traces.devices.gpu_checks import exact, hazards
from traces.devices.gpu_checks.base import Figure, Outcome, Settings
from traces.devices.probes import cuda
from traces.devices.round_trips import DTYPES, cut, page_size

from .rig import Capsys, Patch, fails

LLAMA = "llama-3.1-8b"


def run(tmp_path: Path, *options: str, code: int = 0) -> dict[str, Any]:
    out = tmp_path / "out.json"
    assert (
        main(["check-device", "--device", "cpu", "--shadow", "0", *options, "--json", str(out)])
        == code
    )
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_every_model_pool_layout_backend_dtype_and_direction_is_tried(
    tmp_path: Path, capsys: Capsys
) -> None:
    found = run(tmp_path, "--sets", "1")
    tried = {
        tuple(one[name] for name in ("model", "pool", "dtype", "layout", "io_backend", "direction"))
        for one in found["cases"]
        if one["sets"] > 0
    }
    assert tried == {
        (name, pool.name, dtype, layout, backend, direction)
        for name in models.names()
        for pool in models.get(name).pools
        for dtype in DTYPES
        for layout, backend in legal()
        for direction in ("d2h", "h2d")
    }
    assert found["mismatches"] == 0
    assert all(one["named"] for one in found["refused"])
    asked = [one["asked"] for one in found["refused"]]
    assert {"direct with page_first", "direct with page_head"} <= set(asked)
    assert len(legal()) + 2 == len(LAYOUTS) * len(BACKENDS)
    assert sum(row["pages"] for row in found["samples"]) > 0
    shown = " ".join(capsys.readouterr().out.split())  # where a line ends depends on the CPU's name
    assert "0 mismatches" in shown
    assert f"{len(asked)} of {len(asked)} illegal choices were refused by name" in shown


def test_a_cut_model_keeps_its_byte_layout() -> None:
    for name in models.names():
        model = models.get(name)
        size = page_size(model)
        assert page_size(cut(model, "fp4")) == size
        for before, after in zip(model.pools, cut(model, "bf16").pools, strict=True):
            assert after.rows_per_page(size) == before.rows_per_page(size)
            assert (after.component, after.anchor, after.parts, after.tail_bytes) == (
                before.component, before.anchor, before.parts, before.tail_bytes,
            )  # fmt: skip
            assert (after.page_bytes(size) == 0) == (before.page_bytes(size) == 0)
            assert after.page_bytes(size) <= 1 << 16


def test_the_seed_decides_and_the_sample_rate_changes_no_page_set(tmp_path: Path) -> None:
    small = ("--model", LLAMA, "--sets", "60")
    first = run(tmp_path, *small, "--seed", "3")
    again = run(tmp_path, *small, "--seed", "3", "--sample", "0.1")
    other = run(tmp_path, *small, "--seed", "4")
    assert first["cases"] == again["cases"] != other["cases"]
    rows = {one["direction"]: one for one in again["samples"]}
    assert 0 < rows["d2h"]["pages"] < rows["d2h"]["copied"] // 3
    assert all(
        one["pages"] == one["copied"] for one in first["samples"] if one["direction"] == "d2h"
    )


def test_the_check_includes_a_shadow_run(tmp_path: Path, capsys: Capsys) -> None:
    found = run(tmp_path, "--model", LLAMA, "--sets", "1", "--shadow", "12")
    assert [one["io_backend"] for one in found["shadow"]] == list(BACKENDS)
    for one in found["shadow"]:
        assert 0 < one["caught"] <= one["waits"]
        assert one["reads"] > 0
    assert "waits was detected" in capsys.readouterr().out


def _short(source: Bytes, here: Pages, target: Bytes, there: Pages, layers: range) -> None:
    WHOLE(source, here[:-1], target, there[:-1], layers)


def _beside(source: Bytes, here: Pages, target: Bytes, there: Pages, layers: range) -> None:
    WHOLE(source, here, target, there, layers)
    beside = np.setdiff1d(np.arange(target.shape[1]), there)
    if len(beside) and len(layers):
        target[layers[-1], beside[0], 0, 0, 0, -1] ^= 1


def _shifted(source: Bytes, here: Pages, target: Bytes, there: Pages, layers: range) -> None:
    WHOLE(source, here, target, there, layers)
    if len(layers) > 1:
        target[layers[0], there] = source[layers[1], here]


WHOLE = copy_direct


@pytest.mark.parametrize("fault", [_short, _beside, _shifted])
def test_a_copy_that_is_wrong_is_found_and_named(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys, fault: Any
) -> None:
    monkeypatch.setattr(arena, "copy_direct", fault)
    found = run(tmp_path, "--model", LLAMA, "--sets", "120", code=12)
    assert found["mismatches"] > 0
    wrong = {one["io_backend"] for one in found["cases"] if one["mismatches"]}
    assert wrong == {"direct"}
    said = capsys.readouterr()
    assert f"hicache: {LLAMA}, bf16, layer_first, direct: " in said.err
    assert "bytes differ" in said.err
    assert "wrong" in said.out


def test_an_accepted_illegal_choice_is_a_failure(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    def lenient(layout: str, backend: str) -> None:
        check(layout, "kernel" if backend == "direct" else backend)

    monkeypatch.setattr(table, "check", lenient)
    run(tmp_path, "--model", LLAMA, "--sets", "1", code=10)
    assert "direct with page_first: expected an error that names" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device", "tpu"], "expected one of cpu, cuda, found 'tpu'"),
        (["--model", "llama-9"], "model: expected one of"),
        (["--sets", "0"], "at least 1"),
        (["--sample", "1.5"], "expected a rate from 0 to 1, found '1.5'"),
        (["--json", "/nowhere/out.json"], "/nowhere/out.json"),
        (["--numa-node", "4095"], "--numa-node: expected "),
    ],
)
def test_bad_input_is_one_line(options: list[str], words: str, capsys: Capsys) -> None:
    assert words in fails(capsys, "check-device", *options)


no_gpu = pytest.mark.skipif(not unusable(), reason="this machine has a GPU")


@no_gpu
def test_without_a_gpu_it_says_in_one_line_what_is_missing(tmp_path: Path, capsys: Capsys) -> None:
    report = tmp_path / "report.json"
    assert cli.main(["gpu-check", "-o", str(report)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("hicache: gpu-check: cuda: expected a ")
    assert not report.exists()


def test_a_report_names_the_triton_that_compiles_the_kernel(monkeypatch: Patch) -> None:
    properties = SimpleNamespace(name="G1", total_memory=1 << 30, multi_processor_count=1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(cuda, "version", lambda package: {"triton": "3.2.0"}[package])
    assert cuda.machine()["triton"] == "3.2.0"


@pytest.mark.parametrize("name", registry.names(gpu_check.CHECKS))
def test_every_gpu_check_has_a_summary_and_reports_a_fault(name: str) -> None:
    entry = registry.load(gpu_check.CHECKS, name)
    assert entry.SUMMARY
    assert "\n" not in entry.SUMMARY
    if unusable() and name not in ("contract", "sanitizer"):
        result = gpu_check.run_check(name, Settings(pages=4, repeats=1))
        assert not result["passed"]
        assert "expected a" in result["faults"][0]


def test_a_report_shows_every_figure_and_fault() -> None:
    good = Outcome([Figure("share", 0.95, "", 0.9), Figure("speed", 51.2345, "GB/s")])
    slow = Outcome([Figure("share", 0.5, "", 0.9)])
    wrong = Outcome([Figure("pages", 100, "pages")], ["page 7 differs"])
    assert [one.passed for one in (good, slow, wrong)] == [True, False, False]
    checks = {
        name: {**one.as_document(), "seconds": 1.5}
        for name, one in (("good", good), ("slow", slow), ("wrong", wrong))
    }
    text = "".join(
        gpu_check.markdown(
            {
                "date": "2000-01-01",
                "machine": {"accelerator": "G1"},
                "command": "hicache gpu-check",
                "checks": checks,
            }
        )
    )
    assert "### good: passed" in text
    assert "| share | 0.95 | 0.9 | reached |" in text
    assert "| speed | 51.234 GB/s |  |  |" in text
    assert "### slow: FAILED (not reached: share)" in text
    assert "| share | 0.5 | 0.9 | **missed** |" in text
    assert "### wrong: FAILED (page 7 differs)" in text
    assert "| pages | 100 pages |  |  |" in text


@pytest.mark.parametrize("kind", ["cpu", "cuda-at-once"])
def test_the_loss_of_any_wait_is_caught_from_issue_calls(kind: str) -> None:
    def make() -> CpuDevice | CudaDevice:
        sizes = (grouped(), 2, {"full": hazards.PAGES}, {"full": hazards.PAGES})
        if kind == "cpu":
            return CpuDevice(*sizes)
        return CudaDevice(
            *sizes, DeviceOptions(layout="layer_first", io_backend="direct"), accelerator=AtOnce()
        )

    waits, missed = hazards.drop_each_wait(make)
    assert waits == 2 + grouped().layers, "one per lane, one per layer"
    assert not missed


def test_round_trips_are_compared_with_what_was_written() -> None:
    """On an accelerator that acts at once; a device that loses a byte is found out."""
    model, sizes = get("llama-3.1-8b"), {"full": 160}
    with (
        ThreadPoolExecutor(2) as pool,
        CudaDevice(
            model,
            1,
            sizes,
            sizes,
            DeviceOptions(layout="page_first_direct", io_backend="direct"),
            accelerator=AtOnce(),
        ) as device,
    ):
        tally = exact.Tally()
        draw = np.random.default_rng(1)
        assert exact.round_trips(device, draw, 60, tally, pool, "test") == 60
        assert tally.compared == 2 * 60 + 2 * 64
        assert not tally.faults

        honest = device.copy

        def lossy(stream: Stream, job: CopyJob) -> None:
            honest(stream, job)
            if job.direction is Direction.HOST_TO_DEVICE and job.layers == (0, 1):
                device.synchronize(device.record(stream))  # or the copy writes it after this
                device.arena.pools(Tier.DEVICE, "full")[0].flat[5 * 1024] ^= 1

        device.copy = lossy  # type: ignore[method-assign]
        for _ in range(3):
            exact.round_trips(device, draw, 48, tally, pool, "test")
        assert tally.faults
