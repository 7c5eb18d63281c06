"""The check of a device: what it covers, what it refuses, and that it finds what is planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hicache.models as models
from hicache.core.types import Pages
from hicache.memory import arena, table
from hicache.memory.layouts import BACKENDS, LAYOUTS, Bytes, check, copy_direct, legal
from traces.cli import main
from traces.devices.round_trips import DTYPES, cut, page_size

from .rig import Capsys, Patch
from .test_bad_input import fails

LLAMA = "llama-3.1-8b"


def run(tmp_path: Path, *options: str, code: int = 0) -> dict[str, Any]:
    out = tmp_path / "out.json"
    assert (
        main(["check-device", "--device", "cpu", "--shadow", "0", *options, "--json", str(out)])
        == code
    )
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_every_model_pool_layout_backend_dtype_and_direction_is_tried(
    tmp_path: Path, capsys: Capsys
) -> None:
    found = run(tmp_path, "--sets", "1")
    tried = {
        tuple(one[name] for name in ("model", "pool", "dtype", "layout", "io_backend", "direction"))
        for one in found["cases"]
        if one["sets"] > 0
    }
    assert tried == {
        (name, pool.name, dtype, layout, backend, direction)
        for name in models.names()
        for pool in models.get(name).pools
        for dtype in DTYPES
        for layout, backend in legal()
        for direction in ("d2h", "h2d")
    }
    assert found["mismatches"] == 0
    assert all(one["named"] for one in found["refused"])
    asked = [one["asked"] for one in found["refused"]]
    assert {"direct with page_first", "direct with page_head"} <= set(asked)
    assert len(legal()) + 2 == len(LAYOUTS) * len(BACKENDS)
    assert sum(row["pages"] for row in found["samples"]) > 0
    shown = capsys.readouterr().out
    assert "0 mismatches" in shown
    assert f"{len(asked)} of {len(asked)} illegal choices were refused by name" in shown


def test_a_cut_model_keeps_its_byte_layout() -> None:
    for name in models.names():
        model = models.get(name)
        size = page_size(model)
        assert page_size(cut(model, "fp4")) == size
        for before, after in zip(model.pools, cut(model, "bf16").pools, strict=True):
            assert after.rows_per_page(size) == before.rows_per_page(size)
            assert (after.component, after.anchor, after.parts, after.tail_bytes) == (
                before.component, before.anchor, before.parts, before.tail_bytes,
            )  # fmt: skip
            assert (after.page_bytes(size) == 0) == (before.page_bytes(size) == 0)
            assert after.page_bytes(size) <= 1 << 16


def test_the_seed_decides_and_the_sample_rate_changes_no_page_set(tmp_path: Path) -> None:
    small = ("--model", LLAMA, "--sets", "60")
    first = run(tmp_path, *small, "--seed", "3")
    again = run(tmp_path, *small, "--seed", "3", "--sample", "0.1")
    other = run(tmp_path, *small, "--seed", "4")
    assert first["cases"] == again["cases"] != other["cases"]
    rows = {one["direction"]: one for one in again["samples"]}
    assert 0 < rows["d2h"]["pages"] < rows["d2h"]["copied"] // 3
    assert all(
        one["pages"] == one["copied"] for one in first["samples"] if one["direction"] == "d2h"
    )


def test_the_check_includes_a_shadow_run(tmp_path: Path, capsys: Capsys) -> None:
    found = run(tmp_path, "--model", LLAMA, "--sets", "1", "--shadow", "12")
    assert [one["io_backend"] for one in found["shadow"]] == list(BACKENDS)
    for one in found["shadow"]:
        assert 0 < one["caught"] <= one["waits"]
        assert one["reads"] > 0
    assert "waits was detected" in capsys.readouterr().out


def test_a_numa_node_that_is_not_there_is_refused_in_one_line(capsys: Capsys) -> None:
    assert "--numa-node: expected " in fails(capsys, "check-device", "--numa-node", "4095")


def _short(source: Bytes, here: Pages, target: Bytes, there: Pages, layers: range) -> None:
    WHOLE(source, here[:-1], target, there[:-1], layers)


def _beside(source: Bytes, here: Pages, target: Bytes, there: Pages, layers: range) -> None:
    WHOLE(source, here, target, there, layers)
    beside = np.setdiff1d(np.arange(target.shape[1]), there)
    if len(beside) and len(layers):
        target[layers[-1], beside[0], 0, 0, 0, -1] ^= 1


def _shifted(source: Bytes, here: Pages, target: Bytes, there: Pages, layers: range) -> None:
    WHOLE(source, here, target, there, layers)
    if len(layers) > 1:
        target[layers[0], there] = source[layers[1], here]


WHOLE = copy_direct


@pytest.mark.parametrize("fault", [_short, _beside, _shifted])
def test_a_copy_that_is_wrong_is_found_and_named(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys, fault: Any
) -> None:
    monkeypatch.setattr(arena, "copy_direct", fault)
    found = run(tmp_path, "--model", LLAMA, "--sets", "120", code=12)
    assert found["mismatches"] > 0
    wrong = {one["io_backend"] for one in found["cases"] if one["mismatches"]}
    assert wrong == {"direct"}
    said = capsys.readouterr()
    assert f"hicache: {LLAMA}, bf16, layer_first, direct: " in said.err
    assert "bytes differ" in said.err
    assert "wrong" in said.out


def test_an_accepted_illegal_choice_is_a_failure(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    def lenient(layout: str, backend: str) -> None:
        check(layout, "kernel" if backend == "direct" else backend)

    monkeypatch.setattr(table, "check", lenient)
    run(tmp_path, "--model", LLAMA, "--sets", "1", code=10)
    assert "direct with page_first: expected an error that names" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device", "tpu"], "expected one of cpu, cuda, found 'tpu'"),
        (["--model", "llama-9"], "model: expected one of"),
        (["--sets", "0"], "at least 1"),
        (["--sample", "1.5"], "expected a rate from 0 to 1, found '1.5'"),
        (["--json", "/nowhere/out.json"], "/nowhere/out.json"),
    ],
)
def test_bad_input_is_one_line(options: list[str], words: str, capsys: Capsys) -> None:
    try:
        code = main(["check-device", *options])
    except SystemExit as stopped:
        code = int(str(stopped.code))
    assert code == 2
    assert words in capsys.readouterr().err
