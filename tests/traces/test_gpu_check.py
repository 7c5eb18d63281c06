"""`hicache gpu-check`: what it says where there is no GPU, its report, and that two checks find
what is planted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hicache import registry
from hicache.core.types import Tier
from hicache.devices._accelerator import unusable
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Stream
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import CudaDevice
from hicache.models import get
from tests.devices.at_once import AtOnce
from tests.devices.cases import grouped
from traces import cli
from traces.commands import gpu_check
from traces.devices.gpu_checks import exact, hazards
from traces.devices.gpu_checks.base import Figure, Outcome, Settings
from traces.devices.probes import cuda

from .rig import Capsys, Patch

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
