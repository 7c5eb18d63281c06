"""The units and links of a published profile, and what a measured profile takes from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from hicache.core.config import Config
from hicache.devices.base import Direction
from sim import hardware
from sim.options import WorldOptions
from sim.replica import build


def _file(path: Path, accelerator: str, **changed: Any) -> str:
    """A measured profile that reaches half of an H100's bf16 products."""
    h100 = hardware.get("h100")
    needed = (
        "flops_per_s", "hbm_bytes_per_s", "hbm_bytes", "link_bytes_per_s", "link_shared_permille",
        "copy_latency_ns", "compute_permille", "hbm_permille", "link_permille", "step_overhead_ns",
    )  # fmt: skip
    document = {
        "name": "cuda",
        "hardware": {
            **{name: getattr(h100, name) for name in needed},
            "flops_per_s": h100.flops_per_s // 2,
            **changed,
        },
        "curves": {"d2h": [[1, 2], [3, 4]], "h2d": [[1, 2], [3, 4]]},
        "geometry": {
            "page_size": 64, "model": "tiny", "layout": "page_first", "io_backend": "kernel",
            "component": "full", "shapes": [], "numa_node": None,
        },
        "machine": {"accelerator": accelerator},
        "made": {},
        "measured": {},
    }  # fmt: skip
    path.write_text(json.dumps(hardware.seal(document)))
    return str(path)


@pytest.mark.parametrize(
    ("accelerator", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
    ],
)
def test_a_measured_profile_has_what_was_not_measured_from_the_published_one(
    accelerator: str, name: str, tmp_path: Path
) -> None:
    found, known = hardware.get(_file(tmp_path / "mine.json", accelerator)), hardware.get(name)
    for field in ("ranks_link", "ranks_link_bytes_per_s"):
        assert getattr(found, field) == getattr(known, field)
    for field in ("fp8_flops_per_s", "fp4_flops_per_s"):
        share = found.flops_per_s / known.flops_per_s
        assert getattr(found, field) == pytest.approx(share * getattr(known, field), abs=1)


@pytest.mark.parametrize(
    ("times", "permille"), [("pure-roofline", 1806), ("roofline", 1616), ("aiconfigurator", 1616)]
)
def test_both_directions_share_the_link_as_measured_but_for_runs_that_repeat_earlier_ones(
    times: str, permille: int
) -> None:
    h100, llama = hardware.get("h100"), models.get("llama-3.1-8b")
    config = Config(page_size=64, device_pages=(8,), host_pages=(8,))
    machine = build(config, llama, h100, 1, WorldOptions(times=times))
    count = 1 << 30
    for direction in Direction:
        machine.links[0].send(direction, count, [lambda: None])
    while machine.clock.next_ns() >= 0:
        machine.clock.step()
    rate = 2 * count / (machine.clock.now_ns - h100.copy_latency_ns) * 1e9
    assert rate == pytest.approx(h100.reached_link_bytes_per_s * permille / 1000, rel=0.001)
