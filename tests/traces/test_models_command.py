"""`hicache models` prints what the descriptions say, and docs/models.md is its output."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from hicache import models
from traces.cli import main
from traces.commands.models import totals

from .rig import Capsys

PAGE = Path(__file__).parents[2] / "docs/models.md"


def shown(capsys: Capsys, *arguments: str) -> str:
    assert main(["models", *arguments]) == 0
    return capsys.readouterr().out


def test_the_page_has_what_the_command_prints(capsys: Capsys) -> None:
    text = PAGE.read_text()
    for name in models.names():
        model = models.get(name)
        assert f"| {' | '.join(totals(model, 1))} |" in text
        lines = shown(capsys, name).splitlines()
        assert max(map(len, lines)) <= 80
        assert f"{model.bytes_per_token():,}" in " ".join(lines)
        assert f"Source: {model.source}." in " ".join(" ".join(lines).split())
        for pool in model.pools:
            assert any(line.split()[:1] == [pool.name] for line in lines)
    listed = {line.split(" ")[0] for line in shown(capsys).splitlines()}
    assert {*models.names()} <= listed


def test_json_has_each_stage_and_the_model_itself(capsys: Capsys) -> None:
    arguments = ["qwen3-next-80b-a3b", "--json", "--tp", "2", "--pp", "3", "--page-size", "64"]
    (found,) = json.loads(shown(capsys, *arguments))["models"]
    model = models.get("qwen3-next-80b-a3b")
    stages = model.stages(3)
    assert found["model"] == json.loads(json.dumps(asdict(model)))
    assert [stage["bytes_per_page"] for stage in found["stages"]] == [
        {name: stage.bytes_per_page(name, 64, 2) for name in stage.components} for stage in stages
    ]
