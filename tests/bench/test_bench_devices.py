"""Copies of the CPU device against one plain large copy, and what it costs to issue a load on the
CUDA device, whose driver is a fake that takes its time; measured in turn in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter_ns, sleep, thread_time_ns
from typing import Any

import numpy as np
import pytest

import hicache.models as models
from hicache.core.types import Tier
from hicache.devices.base import CopyJob, DeviceOptions, Direction
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import CudaDevice
from hicache.memory.runs import Offsets
from hicache.runtime.samples import Samples
from tests.devices.at_once import AtOnce

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


def test_cost_of_samples(benchmark: Any, record: Record) -> None:
    """Backups with and without one page in a hundred hashed, in turn."""
    draw = np.random.default_rng(4)
    size = PAGES * LLAMA.bytes_per_page("full", PAGE_SIZE)
    sizes = {"full": PAGES}
    pools = {"full": [(pool.name, pool.layers) for pool in LLAMA.pools]}
    with CpuDevice(
        LLAMA,
        PAGE_SIZE,
        sizes,
        sizes,
        DeviceOptions(layout="page_first_direct", io_backend="direct"),
    ) as device:
        for tier in (Tier.DEVICE, Tier.HOST):
            device.arena.pools(tier, "full")[0].flat[:] = 1

        def rate(samples: Samples) -> float:
            stream = samples.stream("copy")
            start = perf_counter_ns()
            for _ in range(4):
                source, target = draw.permutation(PAGES), draw.permutation(PAGES)
                samples.copy(
                    stream,
                    CopyJob(
                        Direction.DEVICE_TO_HOST, "full", source, target, (0, LLAMA.layers), ""
                    ),
                )
            mark = samples.record(stream)
            device.synchronize(mark)
            spent = perf_counter_ns() - start
            samples.query(mark)
            return 4 * size / spent

        rates = (0.0, 0.01, 0.1)

        def rounds() -> list[list[float]]:
            found = []
            for _ in range(ROUNDS):
                made = [Samples(device, pools, share) for share in rates]
                found.append([rate(samples) for samples in made])
                for samples in made:
                    assert samples.report().mismatches == 0
                    samples.close()
            return found

        found = benchmark.pedantic(rounds, rounds=1, iterations=1, warmup_rounds=1)
    for column in (1, 2):
        share = statistics.median(one[column] / one[0] for one in found)
        what = f"CPU device, direct, SHA-256 of {rates[column]:.0%} of the pages on both sides"
        record(what, f"{share:.0%} of the bandwidth without", "-")


class Slow(AtOnce):
    """A driver that copies nothing and takes as long for each copy as that of an H200, without
    Python's lock."""

    def batch(self, targets: Offsets, sources: Offsets, lengths: Offsets) -> None:
        sleep(len(targets) * 550e-9)


def test_time_to_issue_a_load(benchmark: Any, record: Record) -> None:
    """256 pages in 32 layers: by the thread, while the caller waits for it or computes, and on the
    caller's thread."""
    draw = np.random.default_rng(5)
    sizes = {"full": 256}
    options = DeviceOptions(layout="page_first_direct", io_backend="direct")
    with CudaDevice(LLAMA, 16, sizes, sizes, options, accelerator=Slow()) as device:
        stream = device.stream("load")

        def issue() -> None:
            source, target = draw.permutation(256), draw.permutation(256)
            for layer in range(LLAMA.layers):
                group = (layer, layer + 1)
                device.copy(
                    stream,
                    CopyJob(Direction.HOST_TO_DEVICE, "full", source, target, group, "bench"),
                )
                device.record(stream)

        def compute() -> None:
            while not device._issuer.made(device._issuer._put):
                pass

        def once(meanwhile: Callable[[], object], own: bool) -> tuple[float, float, float]:
            """The caller's time and processor time, and the time until all is issued, in ms."""
            with device.on(stream) if own else nullcontext():
                start, worked = perf_counter_ns(), thread_time_ns()
                issue()
                free = perf_counter_ns() - start, thread_time_ns() - worked
                meanwhile()
            with device.on(stream):
                return free[0] / 1e6, free[1] / 1e6, (perf_counter_ns() - start) / 1e6

        def rounds() -> list[tuple[tuple[float, float, float], ...]]:
            ways = ((lambda: None, False), (compute, False), (lambda: None, True))
            return [tuple(once(*way) for way in ways) for _ in range(4 * ROUNDS)]

        found = benchmark.pedantic(rounds, rounds=1, iterations=1, warmup_rounds=1)
    names = ("the caller waits", "the caller computes", "no thread")
    for way, name in enumerate(names):
        free, work, whole = (
            statistics.median(one[way][part] for one in found) for part in range(3)
        )
        record(
            f"issue a 16k-token load in 32 layers, {name}",
            f"caller {free:.2f} ms (processor {work:.2f} ms), all issued after {whole:.1f} ms",
            "< 2 ms" if way < 2 else "-",
        )
