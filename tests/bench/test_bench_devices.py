"""Copies of the CPU device against one plain large copy, measured in turn in the same run."""

from __future__ import annotations

import statistics
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

import hicache.models as models
from hicache.core.types import Tier
from hicache.devices.base import CopyJob, DeviceOptions, Direction
from hicache.devices.cpu import CpuDevice

from .conftest import Record

LLAMA = models.get("llama-3.1-8b")
PAGE_SIZE = 64
PAGES = 96
ROUNDS = 5


@pytest.mark.parametrize("backend", ["direct", "kernel"])
def test_cpu_copies_against_a_plain_copy(benchmark: Any, record: Record, backend: str) -> None:
    """Scattered pages, every page once. Each round measures all three, so drift hits them alike."""
    draw = np.random.default_rng(3)
    size = PAGES * LLAMA.bytes_per_page("full", PAGE_SIZE)
    sizes = {"full": PAGES}
    with CpuDevice(
        LLAMA,
        PAGE_SIZE,
        sizes,
        sizes,
        DeviceOptions(layout="page_first_direct", io_backend=backend),
    ) as device:
        stream = device.stream("copy")
        (near,), (far,) = (device.arena.pools(tier, "full") for tier in (Tier.DEVICE, Tier.HOST))
        near.flat[:] = 1
        far.flat[:] = 2

        def plain() -> None:
            np.copyto(far.flat, near.flat)

        def scattered(direction: Direction) -> None:
            device.copy(
                stream,
                CopyJob(
                    direction,
                    "full",
                    draw.permutation(PAGES),
                    draw.permutation(PAGES),
                    (0, LLAMA.layers),
                    "bench",
                ),
            )
            device.synchronize(device.record(stream))

        def rate(work: Any, *given: object) -> float:
            start = perf_counter_ns()
            work(*given)
            return size / (perf_counter_ns() - start)

        def rounds() -> list[tuple[float, float, float]]:
            return [
                (
                    rate(plain),
                    rate(scattered, Direction.DEVICE_TO_HOST),
                    rate(scattered, Direction.HOST_TO_DEVICE),
                )
                for _ in range(ROUNDS)
            ]

        found = benchmark.pedantic(rounds, rounds=1, iterations=1, warmup_rounds=1)
    target = ">= 80 %" if backend == "direct" else "-"
    for column, way in ((1, "device to host"), (2, "host to device")):
        share = statistics.median(one[column] / one[0] for one in found)
        speed = statistics.median(one[column] for one in found)
        what = f"CPU device, {backend}, {LLAMA.name}, 64-token pages, page_first_direct, {way}"
        record(what, f"{speed:.1f} GB/s, {share:.0%} of a plain copy", target)
