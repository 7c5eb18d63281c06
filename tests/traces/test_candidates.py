"""Machines that can be bought: what is said of each without a replay, against replays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main, parse
from traces.commands import size as command
from traces.deciding.prices import Prices
from traces.replaying.load import Slo
from traces.replaying.options import ReplayOptions
from traces.sizing.candidates import Candidate, Demand, Machines, cost_of
from traces.sweeping.outcome import outcome_of
from traces.sweeping.work import opened_once

from .rig import Capsys, mooncake, replayed, write

pytestmark = pytest.mark.usefixtures("here")
PROMPT, OUTPUT = 8 * 8192, 40


def both(folder: Path, engine: str, pp: int, count: int) -> tuple[dict[str, Any], ReplayOptions]:
    """The replay of so many prompts of eight passes that come at once, on 2 x pp accelerators."""
    rows = (
        mooncake([*range(200 * n, 200 * n + 128)]) | {"output_length": OUTPUT} for n in range(count)
    )
    path = str(write(folder / f"{count}.jsonl", *rows))
    words = [path, "--engine", engine, "--token-budget", "8192", "--tp", "2", "--pp", str(pp)]
    words += ["--host-bytes", "0", "--check", "off", "--slo", "ttft=1h"]
    _, given = parse(["size", *words])
    assert isinstance(given, command.Options)
    return replayed(folder, *words), given.replay


@pytest.mark.parametrize("pp", [1, 2, 3])
@pytest.mark.parametrize("engine", ["plain", "vllm"])
def test_no_prompt_is_faster_than_alone(engine: str, pp: int, tmp_path: Path) -> None:
    """Without the time of a host, the chunks of a prompt take as long as in the replay."""
    found, base = both(tmp_path, engine, pp, 1)
    ttft_ns = round(found["latency_s"]["ttft"]["mean"] * 1e9)
    demand = Demand(1, PROMPT, OUTPUT, 1.0, PROMPT // 2, {(0, PROMPT): 1})

    def alone(limit_ns: int) -> float:
        options = replace(base, slo=Slo(limit_ns))
        return Machines(options, opened_once(base), demand, None).alone("h100", 2, pp)

    assert alone(ttft_ns + 1) == 1
    assert alone(ttft_ns * 999 // 1000) == (engine == "vllm")


@pytest.mark.parametrize("pp", [1, 2, 3])
def test_no_replica_does_more_than_it_can_at_most(pp: int, tmp_path: Path) -> None:
    count = 12
    found, base = both(tmp_path, "plain", pp, count)
    demand = Demand(count, count * PROMPT, count * OUTPUT, 1.0, PROMPT // 2)
    machines = Machines(base, opened_once(base), demand, None)
    one = Candidate("h100", 2, 1, pp=pp)
    assert 1 <= machines.at_most(one) * found["latency_s"]["makespan"] <= 2.5
    assert machines.at_most(replace(one, replicas=3)) == pytest.approx(
        3 * machines.at_most(one), rel=1e-12
    )
    more = replace(one, pp=pp + 1)  # neither does all that the other does, as fast
    assert machines.weaker(one, one)
    assert not machines.weaker(one, more)
    assert not machines.weaker(more, one)


def test_every_accelerator_is_counted(tmp_path: Path) -> None:
    """Two replicas of two stages of three ranks."""
    assert cost_of(Candidate("h100", 3, 2, pp=2), Prices({"h100": 2.0}), 0) == 24
    words = ["--tp", "4", "--pp", "2", "--replicas", "2", "--limit", "3"]
    found = replayed(tmp_path, str(write(tmp_path / "t.jsonl", mooncake([1]))), *words)
    assert outcome_of(found | {"label": "", "point": {}, "key": ""}).gpus == 16


def test_labels_name_ranks_and_stages_once() -> None:
    assert Candidate("h100", 2, 1, pp=4).label == "8 x h100 (tp 2, pp 4)"
    assert Candidate("h100", 1, 3, pp=2).label == "6 x h100 (3 replicas, each pp 2)"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--pp 16", "--pp: expected stages for the 8 GPUs of a machine (--most-gpus), found 16"),
        ("--pp 33 --tp 1 --hardware h100,h200", "--pp: expected 1 to 32 stages, one for each"),
    ],
)
def test_bad_input_is_one_line(words: str, told: str, tmp_path: Path, capsys: Capsys) -> None:
    path = str(write(tmp_path / "t.jsonl", mooncake([1])))
    assert main(["size", path, "--slo", "ttft=1s", *words.split()]) == 2
    assert capsys.readouterr().err.removeprefix("hicache: ").startswith(told)
