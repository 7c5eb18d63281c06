"""Calibration and the twin: a profile is whole and sealed; real bytes on threads and the simulator
decide the same. No test here looks at how long anything took.
"""

import json
import time
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
from tests.sim.rig import CONFIGURATIONS
from tests.sim.workloads import Prompts, hybrid, shared_prefixes
from tests.tiny import configured
from traces.cli import main
from traces.commands.twin import compare
from traces.devices.runs import DeviceRun, OnSimulator, Played, Service

from .rig import Capsys, document, fails

MODEL = models.TINY
WINDOW = 6
DEVICE = {"full": 22, "swa": 9, "mamba": 8}
HOST = {"full": 200, "swa": 60, "mamba": 40}


def model_of(components: tuple[str, ...]) -> ModelDescription:
    return hybrid(components, WINDOW, MODEL) if len(components) > 1 else MODEL


def serve(
    workload: Prompts, components: tuple[str, ...] = ("full",), spoil: Any = None, **config: Any
) -> tuple[Recording, Played]:
    """A workload on a device, and the recording of what happened there."""
    model, size = model_of(components), workload.page_size
    pages = [{name: sizes[name] for name in components} for sizes in (DEVICE, HOST)]
    tiers = [tuple(sizes.values()) for sizes in pages]
    window = WINDOW if "swa" in components else 0
    core = configured(size, *tiers, components, swa_window=window, **config)
    lines: list[str] = []
    options = DeviceOptions(timer=time.perf_counter_ns)
    with CpuDevice(model, size, *pages, options) as device:
        if spoil is not None:
            spoil(device)
        engine = EngineOptions(token_budget=32, max_running=3, layer_groups=model.layers)
        service = Service(workload, core, model, hardware.get("h100"), engine)
        result = DeviceRun(service, device, lines.append).run()
    return parse("t.recording", [line.encode() for line in lines]), result


@pytest.mark.parametrize(
    ("components", "policy"),
    [*zip(CONFIGURATIONS, ("write_through", "write_back") * 2, strict=True)],
)
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
    moved = {(timing.direction, timing.component) for timing in real.timings}
    assert moved == {(way, name) for way in Direction for name in components}
    assert all(timing.bytes and timing.end_ns >= timing.start_ns > 0 for timing in real.timings)
    assert replay(recording) == real.digest == recording.digest
    result = [
        (timing.direction, timing.component, timing.layers, timing.bytes) for timing in real.timings
    ]
    for seed, name in enumerate(("a100", "h200")):
        device = hardware.get(name)
        digest, timings = OnSimulator(recording, model_of(components), device, seed=seed).run()
        assert digest == real.digest
        same = [
            (timing.direction, timing.component, timing.layers, timing.bytes) for timing in timings
        ]
        assert same == result


def test_the_command_says_what_was_compared(profile: Path, served: Path, tmp_path: Path) -> None:
    recording = tmp_path / "a.recording"
    words = [str(served), "--profile", str(profile), "--device-pages", "40", "--max-running", "2"]
    result = document(tmp_path, "twin", *words, "--recording", str(recording))
    device, copies = result["device"], result["copies"]
    assert device["digest"] == result["simulator"]["digest"]
    assert min(item["bytes"] for item in copies["overall"].values()) > 0, "in both directions"
    assert copies["count"] == sum(item["count"] for item in copies["overall"].values())
    assert min(device["byte_checks"], device["access_checks"]) > 0
    assert sum(device["hit_tokens"].values()) > 0
    assert recording.read_text().count("\n") > device["events"]
    trace = ["replay", str(served), "--device-tokens", "8K", "--hardware"]
    assert main([*trace, str(profile)]) == 0


def test_a_wrong_byte_on_the_device_ends_the_run() -> None:
    def spoil(device: CpuDevice) -> None:
        right = device.copy

        def wrong(stream: Stream, job: CopyJob) -> None:
            right(stream, job)
            if job.direction is Direction.HOST_TO_DEVICE:
                seeds = np.arange(len(job.target), dtype=np.uint64)
                device.write_pattern(stream, job.far, seeds)

        device.copy = wrong  # type: ignore[method-assign]

    with pytest.raises(WrongBytesError, match="prefill of request"):
        serve(shared_prefixes(7, 60, longest=60), spoil=spoil)


def test_different_copies_are_refused(profile: Path) -> None:
    recording, real = serve(shared_prefixes(1, 8))
    result = hardware.read(str(profile))
    _, predicted = OnSimulator(recording, MODEL, hardware.of(result)).run()
    assert compare(real.timings, predicted, result)["count"] == len(real.timings)
    with pytest.raises(CoreBug, match=f"{len(predicted) - 1} in all"):
        compare(real.timings, predicted[:-1], result)
    with pytest.raises(CoreBug, match="copy 0"):
        compare(real.timings, [predicted[0]._replace(bytes=1), *predicted[1:]], result)


BAD = {
    "calibrate --device nothing": "expected one of cpu, cuda",
    "calibrate --io-backend direct --layout page_first": "--io-backend: direct cannot copy page_",
    "calibrate --pages 1M": "memory: expected pools of at most",
    "twin {trace} --profile {other}": "found one of cpu H900; run hicache calibrate here",
    "twin {trace} --profile {profile} --device-pages 3": "--device-pages: expected at least",
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
