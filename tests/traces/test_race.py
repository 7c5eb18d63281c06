"""An overlap that the simulator shows as a failure happens on a device where a stream is held.

No test here looks at how long anything took. A hold is long against the few copies it lets by.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.devices.base import Direction
from hicache.devices.cpu import CpuDevice
from hicache.runtime.controller import COMPUTE, LOAD, WRITE
from hicache.runtime.recording_format import Recording
from invariants.fuzz.tapes import tape as tapes
from sim.hardware import profile as hardware
from tests.sim.judged.workloads import shared_prefixes
from traces.cli import main
from traces.devices.checked_device import Hold
from traces.devices.forced import ForcedResult, Prediction, on_device, on_simulator

from .rig import Capsys
from .test_bad_input import fails
from .test_calibrate import profile
from .test_twin import MODEL, serve, trace

__all__ = ["profile", "trace"]

HELD_NS = 200_000_000
REPEATS = 5


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Prompts that come back after the device has forgotten them."""
    made, real = serve(shared_prefixes(7, 30, longest=60), device_pages=22, host_pages=200)
    assert any(one.direction is Direction.HOST_TO_DEVICE for one in real.timings)
    return made


def simulated(recording: Recording, drop: int = -1) -> Prediction:
    return on_simulator(recording, MODEL, hardware.get("h100"), drop)


def real(recording: Recording, drop: int = -1, hold: Hold | None = None) -> ForcedResult:
    (device,), (host,) = recording.config.device_pages, recording.config.host_pages
    with CpuDevice(MODEL, recording.config.page_size, {"full": device}, {"full": host}) as cpu:
        return on_device(recording, MODEL, cpu, drop, hold)


def test_with_all_waits_device_and_simulator_are_clean(recording: Recording) -> None:
    shown = simulated(recording)
    assert shown.failure == ""
    assert {(one.stream, one.behind) for one in shown.waits} == {
        (COMPUTE, LOAD),
        (LOAD, COMPUTE),
        (WRITE, COMPUTE),
    }
    found = real(recording)
    assert found.wrong == ()
    assert found.compared > 100
    assert found.digest == recording.digest


@pytest.mark.parametrize("stream", [COMPUTE, WRITE])
def test_a_failure_of_the_simulator_is_forced_on_a_device_every_time(
    recording: Recording, stream: str
) -> None:
    """The last wait of the stream whose loss the simulator objects to: a load that a pass does not
    wait for, a backup of what a pass has not written yet."""
    numbers = [at for at, one in enumerate(simulated(recording).waits) if one.stream == stream]
    drop = next(at for at in reversed(numbers) if simulated(recording, at).failure)
    hold = simulated(recording, drop).waits[drop].hold(HELD_NS)
    assert hold.stream == (LOAD if stream == COMPUTE else COMPUTE)
    for _ in range(REPEATS):
        forced = real(recording, drop, hold)
        assert forced.held == 1
        assert forced.wrong, "the stream was held and every byte was right"
        assert forced.digest == recording.digest
    ordered = real(recording, hold=hold)
    assert ordered.held == 1
    assert ordered.wrong == ()


@pytest.mark.parametrize("stream", [COMPUTE, WRITE, LOAD])
def test_with_all_waits_a_slow_lane_changes_no_byte(recording: Recording, stream: str) -> None:
    found = real(recording, hold=Hold(stream, 1_000_000))
    assert found.held > 10
    assert found.wrong == ()


def test_a_recording_with_failed_transfers_is_refused() -> None:
    copies = iter(range(1_000_000))
    failing, _ = serve(
        shared_prefixes(7, 40, longest=60),
        device_pages=22,
        host_pages=200,
        fault=lambda *_: next(copies) % 3 == 1,
    )
    with pytest.raises(CallerError, match="expected a recording whose transfers all succeeded"):
        real(failing)


def test_a_negative_hold_time_is_refused() -> None:
    expected = pytest.raises(CallerError, match="hold: expected 0 ns or more, found -1")
    with CpuDevice(MODEL, 2, {"full": 1}, {"full": 1}) as cpu, expected:
        cpu.hold(cpu.stream(LOAD), -1)


@pytest.fixture(scope="module")
def kept(profile: Path, trace: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A recording as the twin's command keeps it."""
    path = str(tmp_path_factory.mktemp("race") / "run.recording")
    assert main(["twin", str(trace), "--profile", str(profile), "--recording", path]) == 0
    return path


def test_the_command(kept: str, capsys: Capsys) -> None:
    capsys.readouterr()
    assert main(["twin", "--race", kept, "--drop", "0", "--hold", "compute=20000"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "wait 0 left out: write behind compute"
    assert "on stream write is not ordered after the write" in told[1]
    assert "compute held 20,000 us before each item" in told[2]
    assert ": 0 of " not in told[2]
    assert "every wait in place: 0 of " in told[-1]
    assert main(["twin", "--race", kept, "--hold", "d2h:0=1000"]) == 0
    assert "write held 1,000 us before item 0: 0 of " in capsys.readouterr().out


def test_a_race_refuses_a_tape_and_explain_refuses_a_recording(
    kept: str, tmp_path: Path, capsys: Capsys
) -> None:
    tape = str(tmp_path / "tape.jsonl")
    tapes.write(Path(tape), tapes.Tape(Config(page_size=4, device_pages=(8,), host_pages=(8,)), ()))
    capsys.readouterr()
    told = fails(capsys, "twin", "--race", tape, "--drop", "0")
    assert "found a tape of hicache fuzz; give it to hicache fuzz --replay" in told
    assert "found a recording of hicache twin; give it to hicache twin --race" in fails(
        capsys, "explain", kept
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "--race: needs --drop, --hold or both"),
        (["--drop", "0", "--alone"], "--alone: not read with --race"),
        (["--drop", "0", "--limit", "3"], "--limit: not read with --race"),
        (["trace.jsonl", "--drop", "0"], "TRACE: not read with --race"),
        (["--drop", "99999"], "--drop: expected a wait from 0 to "),
        (["--hold", "h3d=5"], "--hold: expected LANE[:ITEM]=MICROSECONDS"),
        (["--hold", "h2d:=5"], "--hold: expected LANE[:ITEM]=MICROSECONDS"),
        (
            ["--hold", "h2d=5", "--model", "gpt-oss-120b"],
            "--model: expected the recording's components",
        ),
    ],
)
def test_bad_input_is_one_line(
    kept: str, arguments: list[str], expected: str, capsys: Capsys
) -> None:
    capsys.readouterr()
    assert expected in fails(capsys, "twin", "--race", kept, *arguments)
