"""Calibration and the twin: a profile is whole and sealed; real bytes on threads and the simulator
decide the same. No test here looks at how long anything took.
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
from hicache.core.errors import CallerError, CoreBug
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Inspectable, Stream
from hicache.devices.cpu import CpuDevice
from hicache.models import ModelDescription
from hicache.runtime.recording import replay
from hicache.runtime.recording_format import Recording, parse, read_recording
from sim.engine.accesses import Accesses
from sim.errors import WrongBytesError
from sim.hardware import measured
from sim.hardware import profile as hardware
from sim.options import EngineOptions
from sim.workload import Job
from tests.configs import configured
from tests.devices.shadow_run import Sizes, drop_each_wait
from tests.sim.rig import CONFIGURATIONS
from tests.sim.workloads import Prompts, hybrid, shared_prefixes
from traces.cli import main
from traces.commands.twin import compare
from traces.devices.runs import AtOnce, DeviceRun, OnSimulator, Played, Service

from .rig import Capsys, Patch, document, fails, mooncake, write

MODEL = models.TINY
PROFILES = ("a100", "h200")


def test_a_calibration_is_a_profile(profile: Path) -> None:
    document = json.loads(profile.read_text())
    assert document["machine"]["accelerator"]
    assert document["geometry"]["page_bytes"] == 64 * 2048
    for way, layers in (("d2h", 4), ("h2d", 1)):
        counts = [count for count, _ in document["curves"][way]]
        assert counts == [pages * 64 * 512 * layers for pages in (1, 2, 3, 4, 6, 8)]
        assert document["measured"][way]["bytes_per_s"] > 0
    found = hardware.get(str(profile))
    assert found.name == f"cpu@{document['hash'][:12]}"
    assert found.flops_per_s == document["measured"]["rates"]["flops_per_s"] > 0
    assert set(found.curves) == {"d2h", "h2d"}


def test_a_replay_says_what_its_profile_did_not_measure(
    profile: Path, tmp_path: Path, capsys: Capsys
) -> None:
    given = [
        "replay",
        str(write(tmp_path / "trace.jsonl", mooncake([1, 2]))),
        "--device-tokens",
        "8K",
        "--hardware",
        str(profile),
    ]
    assert main(given) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "kv with 32 layers of 2 x 131,072 bytes a page: the profile copied" in printed
    assert main([*given[:-1], "h100"]) == 0
    assert "the profile copied" not in capsys.readouterr().out


def test_any_changed_byte_of_a_profile_is_found(profile: Path, tmp_path: Path) -> None:
    text = profile.read_text()
    path = tmp_path / "changed.json"
    for at in range(0, len(text), 37):
        if text[at].isspace():
            continue
        other = "1" if text[at] != "1" else "2"
        path.write_text(text[:at] + other + text[at + 1 :])
        with pytest.raises(CallerError) as caught:
            hardware.get(str(path))
        assert "\n" not in str(caught.value)


WINDOW = 6
HYBRIDS = CONFIGURATIONS[1:]
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
    for seed, name in enumerate(PROFILES):
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


def test_the_command(profile: Path, served: Path, tmp_path: Path, capsys: Capsys) -> None:
    recording = tmp_path / "run.recording"
    words = [str(served), "--profile", str(profile), "--recording", str(recording)]
    found = document(tmp_path, "twin", *words)
    page = capsys.readouterr().out
    digest = found["device"]["digest"]
    assert digest == found["simulator"]["digest"] == replay(read_recording(str(recording)))
    assert page.count(digest) == 2
    copies = found["copies"]
    assert copies["count"] == sum(one["count"] for one in copies["overall"].values())
    assert min(one["bytes"] for one in copies["overall"].values()) > 0
    # 8 pages were calibrated at most, and a batch of four prompts has more
    assert copies["outside_calibration"]


def test_a_profile_of_another_machine_is_refused(
    profile: Path, served: Path, tmp_path: Path, capsys: Capsys
) -> None:
    made = json.loads(profile.read_text())
    del made["hash"], made["hicache_profile"]
    made["machine"]["accelerator"] = "H900"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(measured.seal(made)))
    capsys.readouterr()
    message = fails(capsys, "twin", str(served), "--profile", str(other))
    assert "expected a profile of this machine" in message
    assert "found one of cpu H900" in message


BAD = {
    "calibrate --device nothing": "expected one of cpu, cuda",
    "calibrate --pages 3": "expected at least 4",
    "calibrate --io-backend direct --layout page_first": "--io-backend: direct cannot copy page_",
    "calibrate --pages 1M": "memory: expected pools of at most",
    "twin {trace} --profile h100": "No such file",
    "twin {trace} --profile {folder}": "found: a directory",
    "twin {trace} --profile {profile} --device-pages 3": "--device-pages: expected at least",
    "twin {trace} --profile {profile} --recording /nowhere/t": "a file that can be written",
}


@pytest.mark.parametrize("command", BAD)
def test_options(command: str, profile: Path, served: Path, tmp_path: Path, capsys: Capsys) -> None:
    capsys.readouterr()
    places = {"trace": served, "profile": profile, "folder": tmp_path}
    assert BAD[command] in fails(capsys, *command.format(**places).split())


def test_missing_cuda_is_reported_in_one_line(profile: Path, served: Path, capsys: Capsys) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    capsys.readouterr()
    for command in (["calibrate"], ["twin", str(served), "--profile", str(profile)]):
        assert "expected a CUDA device, found none" in fails(capsys, *command, "--device", "cuda")


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
    _, real = serve(workload, components)
    assert [one.device_tokens > 0 for one in real.requests] == [False] + [True] * 5
    monkeypatch.setattr("traces.devices.runs.Accesses", _WrongHalf)
    with pytest.raises(WrongBytesError, match="prefill of request"):
        serve(workload, components)


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
