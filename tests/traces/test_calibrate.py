"""Calibration: what it writes can be loaded and used, and nothing that was changed can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache.core.errors import CallerError
from hicache.memory import host
from sim.hardware import measured
from sim.hardware import profile as hardware
from sim.hardware.curve import Curve
from traces.cli import main

from .rig import Capsys, Patch, fails, mooncake, write


def trace(folder: Path) -> Path:
    return write(folder / "trace.jsonl", mooncake([1, 2]))


def resealed(path: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The profile with a change and the right hash: what only a check of its content can refuse."""
    document = json.loads(path.read_text())
    del document["hash"], document["hicache_profile"]
    change(document)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(measured.seal(document)))
    return other


def test_a_calibration_is_a_profile(profile: Path) -> None:
    document = json.loads(profile.read_text())
    assert document["made"]["date"] == "2024-02-29"
    assert document["machine"]["accelerator"]
    assert document["geometry"]["page_bytes"] == 64 * 2048
    for way, layers in (("d2h", 4), ("h2d", 1)):
        counts = [count for count, _ in document["curves"][way]]
        assert counts == [pages * 64 * 512 * layers for pages in (1, 2, 3, 4, 6, 8)]
        assert document["measured"][way]["points"] == document["curves"][way]
    found = hardware.get(str(profile))
    assert found.name == f"cpu@{document['hash'][:12]}"
    assert found.flops_per_s == document["measured"]["rates"]["flops_per_s"] > 0
    assert set(found.curves) == {"d2h", "h2d"}


def test_host_memory_of_a_calibration_is_bound_to_the_node(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    bound: list[int] = []
    monkeypatch.setattr(host, "numa_nodes", lambda: (0, 5))
    monkeypatch.setattr(host, "_bind", lambda name, buffer, node: bound.append(node))
    path = tmp_path / "cpu.json"
    given = ["calibrate", "-o", str(path), "--pages", "4", "--repeats", "3", "--numa-node", "5"]
    assert main(given) == 0
    assert bound == [5], "host memory alone"
    assert json.loads(path.read_text())["geometry"]["numa_node"] == 5


def test_a_replay_says_what_its_profile_did_not_measure(
    profile: Path, tmp_path: Path, capsys: Capsys
) -> None:
    given = ["replay", str(trace(tmp_path)), "--device-tokens", "8K", "--hardware", str(profile)]
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


GONE = object()
SHAPE = {"pool": "kv", "layers": 4, "pieces": 2, "piece_bytes": 256}
FAULTS: list[tuple[str, object, str]] = [
    # the place in the document, what stands there, and what is said
    ("curves", GONE, "curves: expected this key, found nothing"),
    ("curves.d2h", [[64, 5]], "points"),
    ("curves.d2h", [[0.5, 4], [64, 5]], "an integer"),
    ("hardware.flops_per_s", 0, "flops_per_s"),
    ("hardware.vram", 1, "vram"),
    ("hardware.link_shared_permille", 2**61, "link_shared_permille"),
    ("geometry.page_size", GONE, "geometry.page_size"),
    ("geometry.shapes", [{**SHAPE, "layers": "4"}], "geometry.shapes"),
    ("geometry.shapes", [{**SHAPE, "pool": "\x1b[2J"}], '"\\u001b[2J"'),
    ("geometry.layout", "diagonal", "layout: expected one of"),
    ("geometry.model", "m" * 101, "geometry.model: expected a printable name"),
    ("geometry.numa_node", "0", "geometry.numa_node"),
]


@pytest.mark.parametrize(("place", "value", "said"), FAULTS)
def test_an_incomplete_profile_with_a_valid_hash_is_refused(
    place: str, value: object, said: str, profile: Path, tmp_path: Path
) -> None:
    *above, last = place.split(".")

    def change(document: dict[str, Any]) -> None:
        for name in above:
            document = document[name]
        document[last] = value
        if value is GONE:
            del document[last]

    path = resealed(profile, tmp_path, change)
    with pytest.raises(CallerError, match="expected a whole profile") as caught:
        hardware.get(str(path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused_in_one_line(profile: Path, tmp_path: Path, capsys: Capsys) -> None:
    capsys.readouterr()
    path, requests = tmp_path / "other.json", str(trace(tmp_path))
    for text, expected in (
        ("", "text that is not JSON"),
        ("[]", "JSON without hicache_profile"),
        ('{"timestamp": 0}', "JSON without hicache_profile"),
        ('{"hicache_profile": 2}', "a profile that was changed since"),
        (profile.read_text().replace('"hicache_profile": 2', '"hicache_profile": 1'), "version 2"),
        ("[" * 100_000, "text that is not JSON"),
    ):
        path.write_text(text)
        assert expected in fails(capsys, "replay", requests, "--hardware", str(path))
    absent = str(tmp_path / "absent.json")
    assert "No such file" in fails(capsys, "replay", requests, "--hardware", absent)
    assert "found: a directory" in fails(capsys, "replay", requests, "--hardware", f"{tmp_path}/")


BAD = {
    "--device nothing": "expected one of cpu, cuda",
    "--pages 3": "expected at least 4",
    "--io-backend direct --layout page_first": "--io-backend: direct cannot copy page_first",
    "--pages 1M": "memory: expected pools of at most",
    "--numa-node 4095": "--numa-node: expected ",
}


@pytest.mark.parametrize("given_", BAD)
def test_options(given_: str, capsys: Capsys) -> None:
    assert BAD[given_] in fails(capsys, "calibrate", *given_.split())


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    counts = sorted(draw(st.sets(st.integers(1, 10**9), min_size=2, max_size=8)))
    times = sorted(
        draw(st.lists(st.integers(1, 10**9), min_size=len(counts), max_size=len(counts)))
    )
    return Curve(tuple(zip(counts, times, strict=True)))


@given(curves(), st.integers(1, 2 * 10**9), st.integers(1, 2 * 10**9))
def test_a_curve_is_exact_at_its_points_and_never_falls(curve: Curve, one: int, other: int) -> None:
    for count, ns in curve.points:
        assert curve.ns(count) == ns
        assert curve.covers(count)
    low, high = sorted((one, other))
    assert 1 <= curve.ns(low) <= curve.ns(high)
