"""The twin: real bytes on threads and the simulator decide the same, and differ where they should.
An overlap that the simulator shows as a failure happens on a device where a stream is held.

No test here looks at how long anything took. A hold is long against the few copies it lets by.
"""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache import models
from hicache.core.config import Config
from hicache.core.errors import CoreBug
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Inspectable, Stream
from hicache.devices.cpu import CpuDevice
from hicache.models import ModelDescription
from hicache.runtime.recording import replay
from hicache.runtime.recording_format import Recording, parse, read_recording
from sim.engine.accesses import Accesses
from sim.errors import WrongBytesError
from sim.hardware import profile as hardware
from sim.options import EngineOptions
from sim.workload import Job
from tests.configs import configured
from tests.devices.shadow_run import Sizes, drop_each_wait
from tests.sim.rig import CONFIGURATIONS
from tests.sim.workloads import Prompts, hybrid, shared_prefixes
from traces.cli import main
from traces.devices.device_run import AtOnce, DeviceResult, DeviceRun, Service
from traces.devices.recording_on_sim import OnSimulator
from traces.devices.twin_report import compare

from .rig import Capsys, Patch, fails
from .test_calibrate import resealed

MODEL = models.TINY
PROFILES = ("a100", "h200")

PLAIN = DeviceOptions()


def serve(
    workload: Prompts,
    device_pages: int = 24,
    host_pages: int = 40,
    engine: EngineOptions | None = None,
    alone: bool = False,
    fault: Any = None,
    spoil: Any = None,
    make: Any = CpuDevice,
    options: DeviceOptions = PLAIN,
    **config: Any,
) -> tuple[Recording, DeviceResult]:
    """A workload on the CPU device, and the recording of what happened there."""
    core = Config(workload.page_size, (device_pages,), (host_pages,), **config)
    lines: list[str] = []
    pages = {"full": device_pages}, {"full": host_pages}
    options = replace(options, fault=fault, timer=time.perf_counter_ns)
    with make(MODEL, workload.page_size, *pages, options) as device:
        if spoil is not None:
            spoil(device)
        limits = engine or EngineOptions(max_running=4, layer_groups=MODEL.layers)
        service = Service(AtOnce(workload), core, MODEL, hardware.get("h100"), limits)
        run = DeviceRun(service, device, lines.append, alone=alone)
        result = run.run()
    return parse("t.recording", [line.encode() for line in lines]), result


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_device_run_replays_on_a_core_and_on_the_simulator(seed: int, policy: str) -> None:
    """The order of completions is the device's own; no time and no byte has a part in decisions."""
    recording, real = serve(shared_prefixes(seed, 25), write_policy=policy)
    assert len(real.requests) == 25
    assert real.checked
    assert real.accesses
    assert replay(recording) == real.digest == recording.digest
    for draws, name in enumerate(PROFILES):
        simulated = OnSimulator(recording, MODEL, hardware.get(name), seed=draws).run()
        assert simulated.digest == real.digest
        assert simulated.byte_checks
        assert simulated.access_checks
        same = [(one.direction, one.pages, one.layers, one.bytes) for one in simulated.timings]
        assert same == [(one.direction, one.pages, one.layers, one.bytes) for one in real.timings]


def test_device_runs_contain_loads_and_replay_the_same() -> None:
    """Prompts that come back after the device has forgotten them."""
    recording, real = serve(shared_prefixes(7, 60, longest=60), device_pages=22, host_pages=200)
    loads = [one for one in real.timings if one.direction is Direction.HOST_TO_DEVICE]
    assert loads
    assert all(one.end_ns >= one.start_ns > 0 for one in real.timings)
    assert sum(request.host_tokens for request in real.requests)
    assert OnSimulator(recording, MODEL, hardware.get("h100")).run().digest == real.digest


def test_the_cuda_device_serves_and_records_as_the_cpu_device_does() -> None:
    """Its streams and events stand-ins on the CPU: everything of the twin but CUDA itself."""
    cuda = pytest.importorskip("hicache.devices.cuda", exc_type=ImportError)
    accelerator = pytest.importorskip("tests.devices.at_once", exc_type=ImportError).AtOnce()
    make = partial(cuda.CudaDevice, accelerator=accelerator)
    workload = shared_prefixes(7, 40, longest=60)
    options = DeviceOptions(layout="page_first_direct", io_backend="direct")
    recording, real = serve(workload, device_pages=22, host_pages=200, make=make, options=options)
    assert real.checked
    assert any(one.direction is Direction.HOST_TO_DEVICE for one in real.timings)
    assert OnSimulator(recording, MODEL, hardware.get("h100")).run().digest == real.digest


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
        serve(shared_prefixes(7, 60, longest=60), device_pages=22, host_pages=200, spoil=spoil)


def test_different_copies_are_refused(profile: Path) -> None:
    recording, real = serve(shared_prefixes(1, 8))
    found = hardware.read(str(profile))
    predicted = OnSimulator(recording, MODEL, hardware.of(found)).run().timings
    assert compare(real.timings, predicted, found)["count"] == len(real.timings)
    with pytest.raises(CoreBug, match=f"{len(predicted) - 1} in all"):
        compare(real.timings, predicted[:-1], found)
    with pytest.raises(CoreBug, match="copy 0"):
        compare(real.timings, [predicted[0]._replace(bytes=1), *predicted[1:]], found)


def test_the_command(profile: Path, served: Path, tmp_path: Path, capsys: Capsys) -> None:
    recording, out = tmp_path / "run.recording", tmp_path / "out.json"
    given = [
        "twin",
        str(served),
        "--profile",
        str(profile),
        "--recording",
        str(recording),
        "--json",
        str(out),
    ]
    assert main(given) == 0
    page = capsys.readouterr().out
    document = json.loads(out.read_text())
    digest = document["device"]["digest"]
    assert digest == document["simulator"]["digest"] == replay(read_recording(str(recording)))
    assert document["device"]["bytes"] == document["simulator"]["bytes"]
    assert page.count(digest) == 2
    assert "the same decisions" in page
    assert set(document["drift"]) == {"before", "after"}
    copies = document["copies"]
    assert copies["count"] == sum(one["count"] for one in copies["overall"].values())
    # 8 pages were calibrated at most, and a batch of four prompts has more
    assert copies["outside_calibration"]["count"]
    assert "are outside the calibrated range" in page
    told = document["conclusions"]
    assert told[0].startswith("The device and the simulator took the same decisions over ")
    assert " ".join(page.split()).endswith(" ".join(["In words", *told]))


def test_a_profile_of_another_machine_needs_force(
    profile: Path, served: Path, tmp_path: Path, capsys: Capsys
) -> None:
    other = resealed(
        profile, tmp_path, lambda document: document["machine"].update(accelerator="H900")
    )
    capsys.readouterr()
    message = fails(capsys, "twin", str(served), "--profile", str(other))
    assert "expected a profile of this machine" in message
    assert "found one of cpu H900" in message
    given = ["twin", str(served), "--profile", str(other), "--force", "--limit", "2"]
    assert main(given) == 0


BAD = {
    "--profile h100": "No such file",
    "--device nothing": "expected one of cpu, cuda",
    "--model nothing": "expected one of tiny",
    "--numa-node 4095": "--numa-node: expected ",
    "--device-pages 3": "--device-pages: expected at least",
    "--device-pages 100K": "memory: expected pools of at most",
    "--recording /nowhere/t.recording": "a file that can be written",
    "--json /nowhere/t.json": "a file that can be written",
}


@pytest.mark.parametrize("given", BAD)
def test_options(given: str, profile: Path, served: Path, capsys: Capsys) -> None:
    capsys.readouterr()
    arguments = ["twin", str(served), "--profile", str(profile), *given.split()]
    assert BAD[given] in fails(capsys, *arguments)


def test_missing_cuda_is_reported_in_one_line(profile: Path, served: Path, capsys: Capsys) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    capsys.readouterr()
    for command in (["calibrate"], ["twin", str(served), "--profile", str(profile)]):
        assert "expected a CUDA device, found none" in fails(capsys, *command, "--device", "cuda")


WINDOW = 6
HYBRIDS = CONFIGURATIONS[1:]
NAMES = ["+".join(each) for each in HYBRIDS]
DEVICE = {"full": 22, "swa": 9, "mamba": 8}
HOST = {"full": 200, "swa": 60, "mamba": 40}


def model_of(components: tuple[str, ...]) -> ModelDescription:
    return hybrid(components, WINDOW, models.TINY)


def device_of(components: tuple[str, ...], page_size: int) -> CpuDevice:
    pages = [{name: sizes[name] for name in components} for sizes in (DEVICE, HOST)]
    model = model_of(components)
    return CpuDevice(model, page_size, *pages, DeviceOptions(timer=time.perf_counter_ns))


def serve_hybrid(
    workload: Prompts, components: tuple[str, ...], **config: Any
) -> tuple[Recording, DeviceResult]:
    model = model_of(components)
    core = configured(
        workload.page_size,
        tuple(DEVICE[name] for name in components),
        tuple(HOST[name] for name in components),
        components,
        swa_window=WINDOW if "swa" in components else 0,
        **config,
    )
    lines: list[str] = []
    with device_of(components, workload.page_size) as device:
        engine = EngineOptions(token_budget=32, max_running=3, layer_groups=model.layers)
        service = Service(AtOnce(workload), core, model, hardware.get("h100"), engine)
        run = DeviceRun(service, device, lines.append)
        result = run.run()
    return parse("t.recording", [line.encode() for line in lines]), result


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("components", HYBRIDS, ids=NAMES)
def test_a_device_serves_every_component_and_the_simulator_decides_the_same(
    components: tuple[str, ...], policy: str
) -> None:
    recording, real = serve_hybrid(
        shared_prefixes(7, 40, longest=60), components, write_policy=policy
    )
    assert len(real.requests) == 40
    assert real.checked
    moved = {(one.direction, one.component) for one in real.timings}
    assert moved == {(way, name) for way in Direction for name in components}
    assert all(one.bytes for one in real.timings)
    assert replay(recording) == real.digest == recording.digest
    simulated = OnSimulator(recording, model_of(components), hardware.get("h100")).run()
    assert simulated.digest == real.digest
    same = [(one.direction, one.component, one.layers, one.bytes) for one in simulated.timings]
    found = [(one.direction, one.component, one.layers, one.bytes) for one in real.timings]
    assert same == found


class _WrongHalf(Accesses):
    """Leaves every checkpoint of decode in the other half of the buffer."""

    def decoded(self, tables: Any, states: Any, *rest: Any) -> Any:
        turned = tuple(
            each._replace(checkpoint_slots=each.checkpoint_slots[::-1]) for each in states
        )
        return super().decoded(tables, turned, *rest)


def test_a_state_in_the_wrong_slot_is_found_as_wrong_bytes(monkeypatch: Patch) -> None:
    """Each prompt goes on from where the one before it ended, so its state is the one decoded."""
    prompts: list[list[int]] = []
    for turn in range(6):
        said = [1000 * turn + token for token in range(9)]
        answered = [10**6 * turn + number for number in range(11)] if turn else []
        prompts.append([*(prompts[-1] if turn else []), *answered, *said])
    jobs = [_job(turn, len(prompt)) for turn, prompt in enumerate(prompts)]
    workload = Prompts(jobs, prompts)
    components = ("full", "mamba")
    monkeypatch.setitem(DEVICE, "full", 40)
    _, real = serve_hybrid(workload, components)
    assert [one.device_tokens > 0 for one in real.requests] == [False] + [True] * 5
    monkeypatch.setattr("traces.devices.device_run.Accesses", _WrongHalf)
    with pytest.raises(WrongBytesError, match="prefill of request"):
        serve_hybrid(workload, components)


def _job(turn: int, length: int) -> Job:
    return Job(turn, 0, length, 12, turn - 1)


def test_every_wait_matters_in_the_shadow_of_every_component() -> None:
    components = CONFIGURATIONS[3]
    model = model_of(components)

    def made(sizes: Sizes) -> AbstractContextManager[Inspectable]:
        pages = [dict.fromkeys(components, n) for n in (sizes.device_pages, sizes.host_pages)]
        return CpuDevice(model, sizes.page_size, *pages)

    found = drop_each_wait(made, Sizes(model, 2), 14)
    assert found.waits == found.caught > 0
    assert min(found.spoiled, found.intact, found.reads) > 0
