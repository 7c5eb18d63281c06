"""`calibrate` and `twin` on the device of the processor: a profile is whole and sealed, and the
device decides what the simulator decides, byte for byte. No time is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .golden import conversations, document, run, same, some


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrated") / "cpu.json"
    run("calibrate", "--pages", "8", "--repeats", "3", "-o", str(path))
    return path


def test_what_a_calibration_measures(calibrated: Path) -> None:
    profile: dict[str, Any] = json.loads(calibrated.read_text())
    sizes = {way: [size for size, _ in points] for way, points in profile["curves"].items()}
    assert all(took > 0 for points in profile["curves"].values() for _, took in points)
    geometry = some(profile, ["geometry.page_bytes", "geometry.shapes", "geometry.layout"])
    keys = {name: sorted(value) for name, value in profile.items() if isinstance(value, dict)}
    same("twin", "profile", [sorted(profile), keys, sizes, geometry])


def test_a_profile_that_was_changed_is_refused(calibrated: Path, tmp_path: Path) -> None:
    changed = json.loads(calibrated.read_text())
    changed["hardware"]["flops_per_s"] += 1
    other = tmp_path / "other.json"
    other.write_text(json.dumps(changed))
    trace = conversations(tmp_path / "trace.jsonl", 4)
    given = ["replay", trace, "--device-tokens", "8K", "--hardware"]
    assert main([*given, str(calibrated)]) == 0
    assert main([*given, str(other)]) == 2


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_device_and_simulator_decide_the_same(
    policy: str, calibrated: Path, tmp_path: Path
) -> None:
    """The order in which copies end is the device's own, so its digest is not recorded."""
    trace = conversations(tmp_path / "trace.jsonl", 16, 4)
    sizes = ["--device-pages", "200", "--host-pages", "400", "--max-running", "2"]
    words = [trace, "--profile", str(calibrated), *sizes, "--write-policy", policy]
    recording = tmp_path / "a.recording"
    found = document(tmp_path, "twin", *words, "--recording", str(recording))
    device, simulator = found["device"], found["simulator"]
    assert device["digest"] == simulator["digest"]
    copies = found["copies"]["overall"].values()
    assert min(one["bytes"] for one in copies) > 0, "copies in both directions"
    assert min(device["byte_checks"], device["access_checks"]) > 0
    assert found["copies"]["count"] == sum(one["count"] for one in copies)
    assert sum(device["hit_tokens"].values()) > 0
    assert recording.read_text().count("\n") > device["events"]
    keys = {name: sorted(value) for name, value in found.items() if isinstance(value, dict)}
    same("twin", "document", keys)
