"""The hits of a real engine and those that the simulator predicts, without the engine: what it said
in runs that were recorded, and an engine that is made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.traces.engines.made_up import MadeUp
from tests.traces.rig import Capsys, Patch, fails, mooncake, write
from traces.cli import main
from traces.commands import _engine_twin
from traces.engines.hits.causes import PASSES, TWICE, UNEXPLAINED, differences
from traces.engines.hits.cut import cut
from traces.engines.hits.runs import Limits, Predicted, predicted
from traces.engines.hits.tokens import Tokens
from traces.formats._open import open_trace, parse
from traces.formats.base import Lines, Paged

RECORDED = json.loads((Path(__file__).parent / "recorded" / "llama.json").read_text())
SIZE = 32


def blocks(*requests: tuple[int, int, list[int]]) -> Paged:
    """A trace in blocks of 32 tokens: prompt and output tokens and the ids of each request."""
    lines = [
        json.dumps(
            {"timestamp": 0, "input_length": length, "output_length": output, "hash_ids": ids}
        ).encode()
        for length, output, ids in requests
    ]
    return parse(Lines("made", iter(lines)), "mooncake", wanted_block_size=SIZE).paged(SIZE)


def nothing(done: int) -> None:
    """Progress that nobody sees."""


@pytest.mark.parametrize("place", range(len(RECORDED["runs"])))
def test_the_simulator_hits_what_vllm_hit(place: int) -> None:
    run, paged = RECORDED["runs"][place], blocks(*RECORDED["trace"])
    limits = Limits(**run["limits"])
    told = predicted(paged, limits, "", nothing)
    assert len({*told.hits}) > 5  # of several depths, so equal by no accident
    found = differences(
        paged,
        range(len(told.hits)),
        limits,
        run["cached"],
        told.hits,
        lambda other: predicted(paged, other, "", nothing),
    )
    assert [(one.request, one.cause) for one in found] == [(100, TWICE)]


def test_another_pool_hits_something_else() -> None:
    run = RECORDED["runs"][0]
    smaller = Limits(**run["limits"] | {"blocks": 250})
    assert predicted(blocks(*RECORDED["trace"]), smaller, "", nothing).hits != run["cached"]


def test_a_trace_is_cut_in_proportion(tmp_path: Path) -> None:
    path = write(
        tmp_path / "trace.jsonl",
        mooncake([7, 8, 9], 1200, output_length=500),
        mooncake([7, 8], 1024, output_length=1, timestamp=5),
    )
    small, how, text = cut(open_trace(str(path)), SIZE, most_blocks=2, most_output=8)
    assert (how.of, how.block) == (512, SIZE)
    first, second = (json.loads(line) for line in text.splitlines())
    assert (first["input_length"], first["output_length"]) == (64, 8)
    assert (second["input_length"], second["output_length"]) == (64, 1)
    assert first["hash_ids"] == second["hash_ids"]
    assert [job.input_length for job in small.jobs] == [64, 64]
    _, _, text = cut(open_trace(str(path)), SIZE, most_blocks=0, most_output=0)
    first = json.loads(text.splitlines()[0])
    assert (first["input_length"], first["output_length"]) == (75, 32)  # 1200 / 16, 500 / 16


def test_equal_pages_have_equal_tokens_and_others_have_others() -> None:
    paged = blocks((70, 1, [1, 2, 3]), (70, 1, [1, 2, 4]), (64, 1, [1, 2]))
    made = [Tokens(paged, 1000).prompt(job) for job in paged.jobs]
    assert [len(one) for one in made] == [70, 70, 64]
    assert made[0][:64] == made[1][:64] == made[2]
    assert made[0][64:] != made[1][64:]
    assert made[0] == Tokens(paged, 1000).prompt(paged.jobs[0])


def test_a_later_turn_repeats_what_the_engine_generated(tmp_path: Path) -> None:
    path = str(tmp_path / "turns.jsonl")
    sizes = ["--input-tokens", "40", "--output-tokens", "50", "--system-tokens", "64"]
    assert (
        main(["generate", "multiturn", "--clients", "1", "--rounds", "2", *sizes, "-o", path]) == 0
    )
    paged = open_trace(path).paged(SIZE)
    tokens = Tokens(paged, 1000)
    first, second = paged.jobs
    prompt = tokens.prompt(first)
    answer = [2000 + place for place in range(first.output_length)]
    tokens.sampled(first, prompt, answer)
    whole = (first.input_length + first.output_length - 1) // SIZE * SIZE
    assert tokens.prompt(second)[:whole] == [*prompt, *answer][:whole]


def test_each_cause_is_a_simulation_that_counts_the_same() -> None:
    # 99 is beyond every simulation
    paged = blocks((64, 1, [1, 2]), (64, 1, [1, 2]), (64, 1, [1, 3]), (64, 1, [1, 4]))
    limits = Limits(9, 4096, 256, True, 2)

    def again(other: Limits) -> Predicted:
        twice = other.one_pool
        return Predicted([0, 32, 8 if twice else 32, 32 if twice else 4], 0, "", 0)

    found = differences(paged, [1, 2, 3, 4], limits, [99, 32, 8, 4], [0, 32, 32, 32], again)
    assert [(one.request, one.cause) for one in found] == [
        (0, UNEXPLAINED),
        (2, TWICE),
        (3, PASSES),
    ]
    assert not differences(paged, [1, 2, 3, 4], limits, [0], [0], again)


@pytest.fixture
def command(monkeypatch: Patch, tmp_path: Path) -> list[str]:
    monkeypatch.setattr(_engine_twin, "Vllm", MadeUp)
    monkeypatch.setattr(_engine_twin, "python_of", lambda given: "python")
    lines = [mooncake([1, 2 + n % 3], 700, output_length=9, timestamp=n) for n in range(6)]
    trace = str(write(tmp_path / "trace.jsonl", *lines))
    return ["twin", trace, "--engine", "vllm", "--device-pages", "40"]


def test_the_command_says_that_all_are_equal(command: list[str], capsys: Capsys) -> None:
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "equal for 6 of 6 requests (100.00%)" in out
    assert "cut from blocks of 512 tokens to 32" in out


def test_a_difference_that_nothing_explains_is_listed_and_fails(
    command: list[str], capsys: Capsys, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MadeUp, "off", 5)
    assert main([*command, "--json", str(tmp_path / "a.json")]) == 1
    out = capsys.readouterr().out
    assert "request 5 (line 6, 44 tokens): engine 37, simulator 32: not explained" in out
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["causes"] == {UNEXPLAINED: 1}
    assert document["requests"]["engine"][5] == 37


def test_a_replay_of_the_cut_trace_hits_the_same(
    command: list[str], capsys: Capsys, tmp_path: Path
) -> None:
    written, rows = tmp_path / "cut.jsonl", tmp_path / "rows.jsonl"
    assert main([*command, "--cut", str(written), "--json", str(tmp_path / "a.json")]) == 0
    sizes = ["--block-size", "32", "--page-size", "32", "--device-pages", "40"]
    replay = ["replay", str(written), "--mode", "hits", "--engine", "vllm", *sizes]
    assert main([*replay, "--requests", str(rows)]) == 0
    hits = [json.loads(line)["hit_tokens"]["device"] for line in rows.read_text().splitlines()]
    assert hits == json.loads((tmp_path / "a.json").read_text())["requests"]["simulator"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--device-pages", "1"], "--device-pages: expected at least 2"),
        (["--profile", "a.json"], "--profile: not read with --engine"),
        (["--race", "a"], "--race and --engine: expected one of them"),
    ],
)
def test_what_cannot_run_is_one_line(
    command: list[str], capsys: Capsys, more: list[str], expected: str
) -> None:
    assert expected in fails(capsys, *command, *more)


def test_options_of_an_engine_need_one(capsys: Capsys, tmp_path: Path) -> None:
    trace = str(write(tmp_path / "trace.jsonl", mooncake([1], 32)))
    given = ["twin", trace, "--profile", "a.json", "--most-blocks", "3"]
    assert "--most-blocks: needs --engine" in fails(capsys, *given)


def test_a_run_without_hits_is_no_agreement() -> None:
    nothing_hit = {"hit_tokens": {"engine": 0, "simulator": 0}, "differences": []}
    [sentence] = _engine_twin.said(nothing_hit)
    assert "nothing was compared" in sentence
    [sentence] = _engine_twin.said(
        {"hit_tokens": {"engine": 32, "simulator": 32}, "differences": []}
    )
    assert "as the engine does" in sentence
