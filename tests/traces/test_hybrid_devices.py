"""Windows and states on devices with real bytes: a run, its recording on the
simulator, its shadow run, and a forced order.

No test here looks at how long anything took.
"""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from hicache.devices.base import DeviceOptions, Direction, Inspectable
from hicache.devices.cpu import CpuDevice
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE, LOAD
from hicache.runtime.recording import replay
from hicache.runtime.recording_format import Recording, parse
from sim.engine.accesses import Accesses
from sim.errors import WrongBytesError
from sim.hardware import profile as hardware
from sim.options import EngineOptions
from sim.workload import Job
from tests.configs import configured
from tests.sim.judged.workloads import Prompts, hybrid, shared_prefixes
from tests.sim.rig import CONFIGURATIONS
from traces.cli import main
from traces.devices.device_run import AtOnce, DeviceResult, DeviceRun, Service
from traces.devices.forced import on_device, on_simulator
from traces.devices.recording_on_sim import OnSimulator
from traces.devices.shadow_run import Sizes, drop_each_wait

from .rig import Patch
from .test_calibrate import profile
from .test_twin import trace

__all__ = ["profile", "trace"]

WINDOW = 6
HYBRIDS = CONFIGURATIONS[1:]
NAMES = ["+".join(each) for each in HYBRIDS]
DEVICE = {"full": 22, "swa": 9, "mamba": 8}
HOST = {"full": 200, "swa": 60, "mamba": 40}
HELD_NS = 200_000_000


def model_of(components: tuple[str, ...]) -> ModelDescription:
    return hybrid(components, WINDOW, models.TINY)


def device_of(components: tuple[str, ...], page_size: int) -> CpuDevice:
    pages = [{name: sizes[name] for name in components} for sizes in (DEVICE, HOST)]
    model = model_of(components)
    return CpuDevice(model, page_size, *pages, DeviceOptions(timer=time.perf_counter_ns))


def serve(
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
    recording, real = serve(shared_prefixes(7, 40, longest=60), components, write_policy=policy)
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
    _, real = serve(workload, components)
    assert [one.device_tokens > 0 for one in real.requests] == [False] + [True] * 5
    monkeypatch.setattr("traces.devices.device_run.Accesses", _WrongHalf)
    with pytest.raises(WrongBytesError, match="prefill of request"):
        serve(workload, components)


def _job(turn: int, length: int) -> Job:
    return Job(turn, 0, length, 12, turn - 1)


@pytest.mark.parametrize("components", HYBRIDS, ids=NAMES)
def test_a_dropped_wait_of_a_load_shows_on_the_simulator_and_on_the_device(
    components: tuple[str, ...],
) -> None:
    recording, _ = serve(shared_prefixes(7, 40, longest=60), components)
    model, profile = model_of(components), hardware.get("h100")
    shown = on_simulator(recording, model, profile)
    assert shown.failure == ""
    numbers = [at for at, one in enumerate(shown.waits) if one.stream == COMPUTE]
    drop = next(
        at for at in reversed(numbers) if on_simulator(recording, model, profile, at).failure
    )
    hold = on_simulator(recording, model, profile, drop).waits[drop].hold(HELD_NS)
    assert hold.stream == LOAD
    wrong = []
    for dropped in (-1, drop):
        with device_of(components, recording.config.page_size) as device:
            forced = on_device(recording, model, device, dropped, hold)
        assert forced.held == 1
        assert forced.digest == recording.digest
        wrong.append(len(forced.wrong))
    assert wrong[0] == 0
    assert wrong[1] > 0, "the stream was held and every byte was right"


def test_the_twin_command_sizes_and_serves_every_component(
    profile: Path, trace: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    components = CONFIGURATIONS[3]
    monkeypatch.setattr("hicache.models.get", lambda _: model_of(components))
    out = tmp_path / "out.json"
    given = ["twin", str(trace), "--profile", str(profile), "--json", str(out)]
    assert main([*given, "--max-running", "2"]) == 0
    document = json.loads(out.read_text())
    assert document["device"]["digest"] == document["simulator"]["digest"]
    assert sum(document["device"]["hit_tokens"].values()) > 0
    assert list(document["geometry"]["components"]) == list(components)


def test_every_wait_matters_in_the_shadow_of_every_component() -> None:
    components = CONFIGURATIONS[3]
    model = model_of(components)

    def made(sizes: Sizes) -> AbstractContextManager[Inspectable]:
        pages = [dict.fromkeys(components, n) for n in (sizes.device_pages, sizes.host_pages)]
        return CpuDevice(model, sizes.page_size, *pages)

    found = drop_each_wait(made, Sizes(model, 2), 14)
    assert found.waits == found.caught > 0
    assert min(found.spoiled, found.intact, found.reads) > 0
