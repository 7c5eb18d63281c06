"""What a GPU must pass (`make gpu-check`), and that two of its checks find what is planted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hicache.models as models
from hicache.core.types import Tier
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Stream
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import CudaDevice
from hicache.memory.layouts import legal
from traces.devices import cuda

from .at_once import AtOnce
from .cases import THREE, page_size, shallow, tour
from .gpu import bandwidth, both_ways, exact, hiding, lent, no_wait
from .gpu.base import Figure, Outcome

CHECKS = (bandwidth, both_ways, exact, hiding, lent, no_wait)
NAMES = [each.__name__.rpartition(".")[2] for each in CHECKS]


@pytest.fixture(scope="module")
def machine() -> dict[str, Any]:
    return cuda.machine()


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # torch warns of its sync debug mode
@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_gpu_passes(check: ModuleType, machine: dict[str, Any]) -> None:
    outcome = check.run()
    print(*(f"{name} {value}" for name, value in machine.items()), sep=", ")
    print(*outcome.figures, sep="\n")
    assert not outcome.wrong


@pytest.mark.gpu
@pytest.mark.parametrize("name", models.names())
def test_every_pool_of_every_model_arrives_as_on_the_cpu_device(name: str) -> None:
    model = shallow(models.get(name))
    sizes = dict.fromkeys(model.components, THREE)
    given = (model, page_size(model), sizes, sizes)
    with CpuDevice(*given) as cpu:
        expected = tour(cpu, model.components, model.layers)
    for layout, backend in legal():
        with CudaDevice(*given, DeviceOptions(layout=layout, io_backend=backend)) as device:
            assert tour(device, model.components, model.layers) == expected, (layout, backend)


def test_a_target_that_is_missed_is_a_fault() -> None:
    good = Outcome([Figure("share", 0.95, "", 0.9), Figure("speed", 51.25, "GB/s")])
    assert not good.wrong
    assert [str(one) for one in good.figures] == ["share: 0.95, at least 0.9", "speed: 51.25 GB/s"]
    bad = Outcome([Figure("share", 0.5, "", 0.9)], ["page 7 differs"])
    assert bad.wrong == ["page 7 differs", "not reached: share: 0.5, at least 0.9"]


def test_round_trips_are_compared_with_what_was_written() -> None:
    """On an accelerator that acts at once; a device that loses a byte is found out."""
    model, sizes = models.get("llama-3.1-8b"), {"full": 160}
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
