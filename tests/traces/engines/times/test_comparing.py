"""Workloads are drawn, played in the simulator and compared; and vLLM itself, where it is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from hicache.models import TINY
from sim.engine_profiles.base import EngineProfile
from sim.hardware import measured as sealing
from sim.hardware import profile as hardware
from sim.hardware.passes import PassTimes
from sim.hardware.served import Served
from tests.needs import vllm_python
from traces.cli import main
from traces.engines.passes import Passes
from traces.engines.times.comparing import Apart, Times, apart, median_of, of_answers
from traces.engines.times.playing import play, streams_of
from traces.engines.times.workloads import Draw, Request, Workload, host_tier, judged, measured

from ...rig import Capsys, fails

PASSES = PassTimes(1e6, (1, 1000), (1e5, 1e8), 0.0, 0.0, 0.0)
ENGINE = EngineProfile("vllm", token_budget=4096, max_running=8, step_host_ns=1_000_000)
PROFILE = replace(hardware.get("h100"), served=Served(ENGINE, TINY, PASSES, {}))


def draw(seed: int = 1) -> Draw:
    return Draw(seed, 1000, 1024, lambda prompt, answer: prompt / 1000 + answer / 100)


def test_workloads_are_those_of_their_seed_and_fit() -> None:
    one, again, other = (
        [*judged(draw(seed), 12), *host_tier(draw(seed), 12)] for seed in (1, 1, 2)
    )
    assert one == again != other
    for workload in one:
        assert len(workload.requests) >= 8
        total: dict[int, int] = {}
        for place, request in enumerate(workload.requests):
            assert request.after < place
            before = total[request.after] if request.extends else 0
            total[place] = before + len(request.tokens) + request.max_tokens
        assert max(total.values()) <= 1024 + 4 * 64
    prompts = {one.tokens for workload in measured(1000, 1024, 64, 2) for one in workload.requests}
    assert not prompts & {one.tokens for workload in one for one in workload.requests}


def test_a_request_alone_takes_what_its_passes_take() -> None:
    tokens = tuple(range(130))
    alone = Workload("alone", (Request(tokens, 3), Request(tokens, 3, 10.0)))
    answers = [{"tokens": [1, 2, 3]}] * 2
    found = play(alone, streams_of(alone, answers), PROFILE, 100, 0)
    assert found.hits == (0, 128)
    step = (1e6 + 1e6) / 1e9
    assert found.ttft_s[0] == pytest.approx(step + PASSES.of_tokens(130) / 1e9, rel=1e-6)
    assert found.ttft_s[1] == pytest.approx(step + PASSES.of_tokens(2) / 1e9, rel=1e-6)
    assert found.tpot_s == pytest.approx([step + 1e5 / 1e9] * 2, rel=1e-3)
    assert found.queue_s == (0.0, 0.0)


def test_a_turn_has_what_was_said_before_it() -> None:
    turns = Workload("turns", (Request((1, 2), 2), Request((5,), 1, 0.5, 0, True)))
    assert streams_of(turns, [{"tokens": [3, 4]}, {"tokens": [6]}]) == [
        [1, 2, 3, 4],
        [1, 2, 3, 4, 5, 6],
    ]


def answer(due: float, sent: float, first: float, last: float, count: int) -> dict[str, Any]:
    return {
        "due_s": due,
        "sent_s": sent,
        "admitted_s": sent + 0.1,
        "first_s": first,
        "last_s": last,
        "tokens": [7] * count,
        "cached": 32,
    }


def test_a_request_waits_from_when_it_was_due() -> None:
    rows = [answer(0.0, 0.0, 1.0, 3.0, 5), answer(2.0, 2.5, 3.0, 3.0, 1)]
    found = of_answers({"answers": rows})
    assert found.ttft_s == (1.0, 1.0)
    assert found.tpot_s == (0.5, 0.0)
    assert found.queue_s == pytest.approx((0.1, 0.6))
    assert found.tokens_per_s == 2.0


def test_differences_are_relative_to_what_was_measured() -> None:
    one = Times((1.0, 2.0), (0.1, 0.0), (0.0, 1.0), (32, 32), 10.0)
    other = Times((1.1, 1.0), (0.1, 0.0), (0.5, 1.0), (32, 0), 12.0)
    found = apart(one, other)
    assert found["ttft"].median == pytest.approx(0.3)
    assert found["ttft"].within == 0.5
    assert found["tpot"] == Apart(1, 0.0, 0.0, 0.0, 1.0)
    assert found["throughput"] == pytest.approx(0.2)
    assert found["equal_hits"] == 1
    assert apart(one, one)["ttft"].nine_of_ten == 0
    assert median_of([one, other, one]).ttft_s == one.ttft_s


class Clock:
    """Each look takes a second."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


class Bag:
    def __init__(self, **named: Any) -> None:
        self.__dict__ |= named


def test_a_pass_is_chunks_decoding_and_their_rows() -> None:
    output = Bag(
        num_scheduled_tokens={"1-ab": 30, "2-cd": 1, "3-ef": 20},
        scheduled_new_reqs=[Bag(req_id="1-ab", num_computed_tokens=64)],
        scheduled_cached_reqs=Bag(req_ids=["2-cd", "3-ef"], num_computed_tokens=[100, 40]),
    )
    prompts = {"1-ab": 94, "2-cd": 90, "3-ef": 60}
    scheduler = Bag(
        requests={name: Bag(num_prompt_tokens=count) for name, count in prompts.items()},
        schedule=lambda: output,
        update_from_output=lambda scheduled, made: None,
    )
    outputs = Bag(process_outputs=lambda: None)
    passes = Passes(Bag(output_processor=outputs), scheduler, Clock())
    scheduler.schedule()
    scheduler.update_from_output(output, None)
    outputs.process_outputs()
    passes.stepped()
    assert passes.admitted == {"1": 1.0}
    assert passes.take() == [[6.0, 3.0, [[64, 94], [40, 60]], 1, 101]]
    assert passes.take() == []


BAD = {
    "--judge": "--judge: needs --engine",
    "--profile p.json": "--profile: needs --engine",
    "--model /nowhere/": "--model: expected a name without --engine",
    "--engine vllm --model /nowhere/": "--model: expected a folder with config.json",
    "--engine vllm --judge": "-o: expected a file with --judge",
    "--engine vllm --json j.json": "--json: needs --judge",
    "--engine vllm --clock processor": "--clock: expected --threads 1",
    "--engine vllm --runs 1": "expected 2 to 100",
    "--engine vllm --longest 100": "expected at least 640",
    "--engine sglang": "expected one of vllm",
    "--engine vllm --python /nowhere/python": "python: expected one with vLLM",
}


@pytest.mark.parametrize("given", BAD)
def test_bad_options(given: str, capsys: Capsys) -> None:
    assert BAD[given] in fails(capsys, "calibrate", *given.split())


def written(profile: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    document = json.loads(profile.read_text())
    del document["hash"], document["hicache_profile"]
    change(document)
    path = tmp_path / "served.json"
    path.write_text(json.dumps(sealing.seal(document)))
    return path


def test_a_replay_takes_engine_model_and_passes_from_the_file(
    profile: Path, tmp_path: Path, capsys: Capsys
) -> None:
    engine = asdict(ENGINE)
    del engine["asked"]
    served = {
        "engine": engine,
        "model": models.as_document(TINY),
        "passes": asdict(PASSES),
        "fit": {},
    }
    path = str(written(profile, tmp_path, lambda document: document.update(served=served)))
    out = tmp_path / "out.json"
    given = ["replay", "--limit", "20", "--device-pages", "9000", "--json", str(out)]
    assert main([*given, "--hardware", path]) == 0
    config = json.loads(out.read_text())["config"]
    assert (config["model"], config["times"], config["engine"]) == ("tiny", "measured", "vllm")
    assert config["max_running"] == 8
    assert main([*given, "--hardware", path, "--times", "roofline", "--engine", "sglang"]) == 0
    config = json.loads(out.read_text())["config"]
    assert (config["times"], config["engine"][:6]) == ("roofline", "sglang")
    capsys.readouterr()
    said = fails(capsys, *given, "--hardware", path, "--model", "llama-3.1-8b")
    assert "times: expected tiny on one rank" in said
    assert "times: expected --hardware with a file" in fails(capsys, *given, "--times", "measured")


def test_an_engine_is_measured_and_judged(tmp_path: Path, capsys: Capsys) -> None:
    vllm_python()
    path, out = tmp_path / "server.json", tmp_path / "out.json"
    short = ["--longest", "640", "--runs", "2", "--threads", "1", "--clock", "processor"]
    given = ["calibrate", "--engine", "vllm", "--family", "llama", "--requests", "6", *short]
    more = ["--repeats", "3", "--pages", "8", "--judge", "--json", str(out), "-o", str(path)]
    assert main([*given, *more]) == 0
    found = json.loads(out.read_text())
    assert len(found["workloads"]) == 6
    for workload in found["workloads"]:
        assert workload["engine"]["hits"] == workload["simulator"]["hits"]
        assert min(workload["engine"]["ttft_s"]) > 0
    assert main(["replay", "--limit", "20", "--hardware", str(path)]) == 0
