"""What a GPU must pass (`make gpu-check`), beside the suites of tests/contract and tests/golden.
The copy kernel without one, by Triton's interpreter, which is chosen for a whole process."""

import importlib.util
import os
import re
from types import ModuleType
from typing import Any

import pytest

import hicache.models as models
from hicache.devices.base import DeviceOptions
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import CudaDevice
from hicache.memory.layouts import legal
from tests.traces.rig import python
from traces.devices import cuda

from .cases import THREE, page_size, shallow, tour
from .gpu import hiding, lent, no_wait
from .gpu._bench import Figure, Outcome

CHECKS = (hiding, lent, no_wait)
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
    value = (model, page_size(model), sizes, sizes)
    with CpuDevice(*value) as cpu:
        expected = tour(cpu, model.components, model.layers)
    for layout, backend in legal():
        with CudaDevice(*value, DeviceOptions(layout=layout, io_backend=backend)) as device:
            assert tour(device, model.components, model.layers) == expected, (layout, backend)


def test_a_target_that_is_missed_is_a_fault() -> None:
    assert not Outcome([Figure("share", 0.95, "", 0.9), Figure("speed", 51.25, "GB/s")]).wrong
    bad = Outcome([Figure("share", 0.5, "", 0.9)], ["page 7 differs"])
    assert bad.wrong == ["page 7 differs", "not reached: share: 0.5, at least 0.9"]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_copies_are_exact_under_the_interpreter() -> None:
    interpreted = os.environ | {"TRITON_INTERPRET": "1"}
    done = python("-m", "pytest", "tests/devices/interpreted.py", env=interpreted)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d passed", done.stdout)
    assert "skipped" not in done.stdout
