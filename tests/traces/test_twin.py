"""The twin: real bytes on threads and the simulator decide the same, and differ where they should.

No test here looks at how long anything took.
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
from hicache.core.config import Config
from hicache.core.errors import CoreBug
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Stream
from hicache.devices.cpu import CpuDevice
from hicache.runtime.recording import replay
from hicache.runtime.recording_format import Recording, parse, read_recording
from sim.errors import WrongBytesError
from sim.hardware import profile as hardware
from sim.options import EngineOptions
from tests.sim.judged.workloads import Prompts, shared_prefixes
from traces.cli import main
from traces.devices.device_run import AtOnce, DeviceResult, DeviceRun, Service
from traces.devices.recording_on_sim import OnSimulator
from traces.devices.twin_report import compare

from .rig import Capsys
from .test_bad_input import fails
from .test_calibrate import profile, resealed

__all__ = ["profile"]

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


def test_failed_copies_are_replayed_from_the_recording() -> None:
    copies = iter(range(1_000_000))
    recording, real = serve(
        shared_prefixes(7, 40, longest=60),
        device_pages=22,
        host_pages=200,
        fault=lambda *_: next(copies) % 3 == 1,
    )
    assert len(real.requests) == 40
    assert any(one.failed for one in real.timings)
    assert replay(recording) == OnSimulator(recording, MODEL, hardware.get("h100")).run().digest


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


def test_waiting_for_copies_changes_the_order_only() -> None:
    workload = shared_prefixes(4, 20)
    recording, real = serve(workload, alone=True)
    assert replay(recording) == real.digest
    assert [one.request for one in real.requests] == list(range(20))


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


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twin") / "trace.jsonl"
    assert main(["generate", "multiturn", "--clients", "4", "--rounds", "3", "-o", str(path)]) == 0
    return path


def test_the_command(profile: Path, trace: Path, tmp_path: Path, capsys: Capsys) -> None:
    recording, out = tmp_path / "run.recording", tmp_path / "out.json"
    given = [
        "twin",
        str(trace),
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


def test_copies_in_other_pieces_than_those_measured_are_said(
    profile: Path, trace: Path, tmp_path: Path, capsys: Capsys
) -> None:
    """The number of bytes may lie in the range, and the time depends on the pieces, too."""
    out = tmp_path / "out.json"
    given = ["twin", str(trace), "--profile", str(profile), "--limit", "2", "--json", str(out)]
    for model, words in (("tiny", 0), ("llama-3.1-8b", 1)):
        assert main([*given, "--model", model]) == 0
        shapes = json.loads(out.read_text())["copies"]["shapes"]
        printed = capsys.readouterr().out
        assert len(shapes["outside"]) == words
        assert printed.count("not calibrated: kv with 32 layers of 2 x 131,072 bytes") == words
        assert printed.count("the profile was measured on tiny, kv with 4 layers") == words


def test_json_on_stdout_is_the_only_output(profile: Path, trace: Path, capsys: Capsys) -> None:
    assert main(["twin", str(trace), "--profile", str(profile), "--limit", "3", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["trace"]["requests"] == 3


def test_a_profile_of_another_machine_needs_force(
    profile: Path, trace: Path, tmp_path: Path, capsys: Capsys
) -> None:
    other = resealed(
        profile, tmp_path, lambda document: document["machine"].update(accelerator="H900")
    )
    capsys.readouterr()
    message = fails(capsys, "twin", str(trace), "--profile", str(other))
    assert "expected a profile of this machine" in message
    assert "found one of cpu H900" in message
    given = ["twin", str(trace), "--profile", str(other), "--force", "--limit", "2"]
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
def test_options(given: str, profile: Path, trace: Path, capsys: Capsys) -> None:
    capsys.readouterr()
    arguments = ["twin", str(trace), "--profile", str(profile), *given.split()]
    assert BAD[given] in fails(capsys, *arguments)


def test_missing_cuda_is_reported_in_one_line(profile: Path, trace: Path, capsys: Capsys) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    capsys.readouterr()
    for command in (["calibrate"], ["twin", str(trace), "--profile", str(profile)]):
        assert "expected a CUDA device, found none" in fails(capsys, *command, "--device", "cuda")
