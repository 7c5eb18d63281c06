"""The drawn lives of docs/figures.md: the page's command gives the page's figures."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .conftest import Record

PAGE = (Path(__file__).parents[2] / "docs" / "figures.md").read_text()
POLICIES = ("write_through", "write_through_selective", "write_back")


def rows() -> dict[str, list[tuple[str, ...]]]:
    """By components: operations, events and failures under each write policy, as the page says."""
    cell = r"([\d,]+) operations, ([\d,]+) events, (\d+)"
    lines = re.findall(rf"^\| (full[a-z, ]*) \| {cell} \| {cell} \| {cell} \|$", PAGE, re.MULTILINE)
    return {line[0].replace(" ", ""): [line[1:4], line[4:7], line[7:10]] for line in lines}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("components", ["full", "full,swa", "full,mamba", "full,swa,mamba"])
def test_drawn_lives(
    benchmark: Any, record: Record, tmp_path: Path, components: str, policy: str
) -> None:
    [command] = re.findall(r"`(hicache fuzz --seed 1 [^`]* --write-policy P)`", PAGE)
    words = shlex.split(command.replace(" C ", f" {components} ").replace(" P", f" {policy}"))[1:]
    document = tmp_path / "fuzz.json"
    words += ["-o", str(tmp_path / "failures"), "--json", str(document)]
    assert benchmark.pedantic(main, (words,), rounds=1, iterations=1) == 0
    result = json.loads(document.read_text())
    found = f"{result['operations']:,}", f"{result['events']:,}", str(len(result["failures"]))
    assert found == rows()[components][POLICIES.index(policy)]
    assert result["operations"] >= 20_000
    record(f"drawn lives, {components}, {policy}", f"{found[1]} events, {found[2]} failures", "0")
