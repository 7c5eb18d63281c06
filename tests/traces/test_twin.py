"""Calibration and the twin: a profile is whole and sealed; real bytes on threads and the simulator
decide the same. No test here looks at how long anything took.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache import models
from hicache.core.errors import CoreBug
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Stream
from hicache.devices.cpu import CpuDevice
from hicache.models import ModelDescription
from hicache.runtime.recording import Recording, parse, replay
from sim import hardware
from sim import hardware as measured
from sim.errors import WrongBytesError
from sim.options import EngineOptions
from tests.configs import configured
from tests.sim.rig import CONFIGURATIONS
from tests.sim.workloads import Prompts, hybrid, shared_prefixes
from traces.commands.twin import compare
from traces.devices.runs import AtOnce, DeviceRun, OnSimulator, Played, Service

from .rig import Capsys, fails

MODEL = models.TINY
WINDOW = 6
DEVICE = {"full": 22, "swa": 9, "mamba": 8}
HOST = {"full": 200, "swa": 60, "mamba": 40}
PLAIN = DeviceOptions()


def model_of(components: tuple[str, ...]) -> ModelDescription:
    return hybrid(components, WINDOW, MODEL) if len(components) > 1 else MODEL


def serve(
    workload: Prompts,
    components: tuple[str, ...] = ("full",),
    spoil: Any = None,
    make: Any = CpuDevice,
    options: DeviceOptions = PLAIN,
    **config: Any,
) -> tuple[Recording, Played]:
    """A workload on a device, and the recording of what happened there."""
    model, size = model_of(components), workload.page_size
    pages = [{name: sizes[name] for name in components} for sizes in (DEVICE, HOST)]
    tiers = [tuple(sizes.values()) for sizes in pages]
    window = WINDOW if "swa" in components else 0
    core = configured(size, *tiers, components, swa_window=window, **config)
    lines: list[str] = []
    with make(model, size, *pages, replace(options, timer=time.perf_counter_ns)) as device:
        if spoil is not None:
            spoil(device)
        engine = EngineOptions(token_budget=32, max_running=3, layer_groups=model.layers)
        service = Service(AtOnce(workload), core, model, hardware.get("h100"), engine)
        result = DeviceRun(service, device, lines.append).run()
    return parse("t.recording", [line.encode() for line in lines]), result


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("components", CONFIGURATIONS, ids="+".join)
def test_a_device_serves_every_component_and_the_simulator_decides_the_same(
    components: tuple[str, ...], policy: str
) -> None:
    """Prompts that come back after the device has forgotten them. The order of completions is the
    device's own; no time and no byte has a part in decisions."""
    workload = shared_prefixes(7, 40, longest=60)
    recording, real = serve(workload, components, write_policy=policy)
    assert len(real.requests) == 40
    assert min(real.byte_checks, real.access_checks) > 0
    assert sum(request.host_tokens for request in real.requests)
    moved = {(one.direction, one.component) for one in real.timings}
    assert moved == {(way, name) for way in Direction for name in components}
    assert all(one.bytes and one.end_ns >= one.start_ns > 0 for one in real.timings)
    assert replay(recording) == real.digest == recording.digest
    found = [(one.direction, one.component, one.layers, one.bytes) for one in real.timings]
    for seed, name in enumerate(("a100", "h200")):
        device = hardware.get(name)
        digest, timings = OnSimulator(recording, model_of(components), device, seed=seed).run()
        assert digest == real.digest
        same = [(one.direction, one.component, one.layers, one.bytes) for one in timings]
        assert same == found


def test_the_cuda_device_serves_and_records_as_the_cpu_device_does() -> None:
    """Its streams and events stand-ins on the CPU: everything of the twin but CUDA itself."""
    cuda = pytest.importorskip("hicache.devices.cuda", exc_type=ImportError)
    accelerator = pytest.importorskip("tests.devices.at_once", exc_type=ImportError).AtOnce()
    make = partial(cuda.CudaDevice, accelerator=accelerator)
    workload = shared_prefixes(7, 40, longest=60)
    options = DeviceOptions(layout="page_first_direct", io_backend="direct")
    recording, real = serve(workload, make=make, options=options)
    assert real.byte_checks
    assert any(one.direction is Direction.HOST_TO_DEVICE for one in real.timings)
    assert OnSimulator(recording, MODEL, hardware.get("h100")).run()[0] == real.digest


def test_a_wrong_byte_on_the_device_ends_the_run() -> None:
    def spoil(device: CpuDevice) -> None:
        right = device.copy

        def wrong(stream: Stream, job: CopyJob) -> None:
            right(stream, job)
            if job.direction is Direction.HOST_TO_DEVICE:
                seeds = np.arange(len(job.target), dtype=np.uint64)
                device.scribble(stream, job.far, seeds)

        device.copy = wrong  # type: ignore[method-assign]

    with pytest.raises(WrongBytesError, match="prefill of request"):
        serve(shared_prefixes(7, 60, longest=60), spoil=spoil)


def test_different_copies_are_refused(profile: Path) -> None:
    recording, real = serve(shared_prefixes(1, 8))
    found = hardware.read(str(profile))
    _, predicted = OnSimulator(recording, MODEL, hardware.of(found)).run()
    assert compare(real.timings, predicted, found)["count"] == len(real.timings)
    with pytest.raises(CoreBug, match=f"{len(predicted) - 1} in all"):
        compare(real.timings, predicted[:-1], found)
    with pytest.raises(CoreBug, match="copy 0"):
        compare(real.timings, [predicted[0]._replace(bytes=1), *predicted[1:]], found)


BAD = {
    "calibrate --device nothing": "expected one of cpu, cuda",
    "calibrate --pages 3": "expected at least 4",
    "calibrate --io-backend direct --layout page_first": "--io-backend: direct cannot copy page_",
    "calibrate --pages 1M": "memory: expected pools of at most",
    "twin {trace} --profile h100": "No such file",
    "twin {trace} --profile {other}": "found one of cpu H900; run hicache calibrate here",
    "twin {trace} --profile {profile} --device-pages 3": "--device-pages: expected at least",
    "twin {trace} --profile {profile} --recording /nowhere/t": "a file that can be written",
}


@pytest.mark.parametrize("command", BAD)
def test_options(command: str, profile: Path, served: Path, tmp_path: Path, capsys: Capsys) -> None:
    made = json.loads(profile.read_text())
    del made["hash"], made["hicache_profile"]
    made["machine"]["accelerator"] = "H900"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(measured.seal(made)))
    capsys.readouterr()
    places = {"trace": served, "profile": profile, "other": other}
    assert BAD[command] in fails(capsys, *command.format(**places).split())


def test_missing_cuda_is_reported_in_one_line(profile: Path, served: Path, capsys: Capsys) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    capsys.readouterr()
    for command in (["calibrate"], ["twin", str(served), "--profile", str(profile)]):
        assert "expected a CUDA device, found none" in fails(capsys, *command, "--device", "cuda")
