"""`hicache prove --engine vllm` without vLLM: what is drawn, the rule of judging, how lives are
played, and the report. The engine here answers at once, and wrongly where a test wants it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.needs import vllm_python
from traces.cli import main
from traces.engines import plants
from traces.engines.models import VOCABULARY
from traces.judging import faults
from traces.judging.drawing import ASK, DROP, FAULT, Request, lives, scale_of
from traces.judging.playing import CONNECTOR, OWN, Failure, Judged, Player
from traces.judging.report import Total, document, show, verdict
from traces.judging.rule import Answer, Verdict, judge
from traces.judging.script import script
from traces.judging.sides import held
from traces.terminal.asked import Ended

from .rig import Capsys, fails
from .test_json_docs import compare

SCALE = scale_of(32)
PLANTED = Path(plants.__file__).with_name("planted.py")


# -- what is drawn


def test_a_seed_draws_the_same_lives_and_another_one_others() -> None:
    first, again, other = (list(islice(lives(seed, SCALE, True), 3)) for seed in (1, 1, 2))
    assert first == again != other


def test_lives_have_all_that_is_to_be_judged() -> None:
    drawn = list(islice(lives(1, SCALE, True), 6))
    steps = [step for life in drawn for sequence in life.sequences for step in sequence]
    requests = [one for step in steps for one in step.requests]
    assert {step.do for step in steps} == {ASK, DROP, FAULT}
    assert all(len(one.prompt) <= SCALE.longest for one in requests)
    assert any(one.follows >= 0 for one in requests)
    assert any(one.abort_after for one in requests)
    assert any(one.salt for one in requests)
    whole = [one.prompt for one in requests if one.follows < 0]
    assert len(set(whole)) < len(whole), "no prompt is repeated"
    assert any(prompt and len(prompt) % SCALE.page == 0 for prompt in whole)
    assert {life.store_pages for life in drawn} > {-1}
    assert {life.drafts for life in drawn} == {0, 3}
    assert not any(
        step.do == FAULT
        for life in islice(lives(1, SCALE, False), 6)
        for sequence in life.sequences
        for step in sequence
    )


@pytest.mark.parametrize("name", ["flip", "cut", "delete", "gone", "noise", "dead"])
def test_faults_harm_a_store(name: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert name in ("gone", "dead") or not faults.do(name, store, Random(1))
    (store / "segments").mkdir(parents=True)
    (store / "index.sqlite").write_bytes(bytes(100))
    (store / "segments" / "0.slots").write_bytes(bytes(1000))
    assert faults.do(name, store, Random(1))
    index, values = store / "index.sqlite", store / "segments" / "0.slots"
    harmed = not values.exists() or any(values.read_bytes()) or values.stat().st_size < 1000
    assert harmed or any(index.read_bytes())
    faults.remove(store)
    assert not store.exists()


# -- the rule


def row(own: int, best: float = -1.0, **others: float) -> dict[int, float]:
    return {own: best} | {int(name[1:]): value for name, value in others.items()}


def judged(answer: Answer, truth: dict[int, Answer], *others: Answer) -> Verdict:
    """truth: by the number of tokens of the answer before it."""

    def cold(prompt: Sequence[int], count: int) -> Answer:
        return truth[len(prompt) - 1]

    return judge((0,), answer, 1e-5, cold, lambda *_: others)


def test_equal_answers_are_the_same_and_close_ones_are_near() -> None:
    truth = Answer((1, 2), (row(1), row(2)))
    assert judged(truth, {0: truth}).kind == "same"
    near = Answer((1, 2), (row(1, -1.00009), row(2)))
    found = judged(near, {0: truth})
    assert found.kind == "near"
    assert found.difference == pytest.approx(9e-5)


def test_another_token_is_right_only_where_it_is_a_near_tie() -> None:
    """From there on, the cold run goes on from the answer's own token."""
    answer = Answer((1, 7), (row(1, -1.0, t2=-1.00005), row(7)))
    truth = Answer((2, 9), (row(2, -1.0, t1=-1.00005), row(9)))
    goes_on = Answer((7,), (row(7),))
    assert judged(answer, {0: truth, 1: goes_on}).kind == "tie"
    far = Answer((2, 9), (row(2, -1.0, t1=-1.3), row(9)))
    mine = Answer((1, 7), (row(1, -1.3, t2=-1.0), row(7)))
    assert judged(mine, {0: far}).kind == "wrong"
    unknown = Answer((2,), (row(2, -1.0, t3=-1.00001),))
    assert judged(Answer((1,), (row(1, -1.0, t3=-1.00001),)), {0: unknown}).kind == "wrong"
    assert judged(answer, {0: truth, 1: Answer((8,), (row(8),))}).kind == "wrong"


def test_the_same_tokens_with_other_probabilities_are_wrong() -> None:
    truth = Answer((1,), (row(1, -1.0, t2=-2.0),))
    wrong = Answer((1,), (row(1, -1.0, t2=-2.001),))
    found = judged(wrong, {0: truth}, truth)
    assert found.kind == "wrong"
    assert "token 0: log probabilities differ by 0.001" in found.text


def test_what_a_cold_run_in_another_way_says_is_a_jump() -> None:
    truth, jumps = Answer((1, 2), (row(1), row(2))), Answer((1, 2), (row(1), row(2, -1.5)))
    assert judged(jumps, {0: truth}, truth, jumps).kind == "jumped"


# -- lives that are played


def tokens_of(prompt: Sequence[int], count: int) -> list[int]:
    """What the model says: it depends on every token before."""
    found = list(prompt)
    for _ in range(count):
        found.append(Random(str(found)).randrange(VOCABULARY))
    return found[len(prompt) :]


class Engine:
    """Stands for `Vllm`. spoils: changes an answer, by what the engine was opened with."""

    stores: list[Path] = []  # noqa: RUF012 - of one test
    drafts: list[tuple[str, int]] = []  # noqa: RUF012 - of one test

    def __init__(self, spoils: Callable[[str, dict[str, Any]], None], **given: Any) -> None:
        self._spoils = spoils
        connector = given.get("connector")
        cold = "enable_prefix_caching" in given.get("engine", {})
        self._name = CONNECTOR if connector else "cold" if cold else OWN
        self.blocks = 100
        if drafts := given.get("engine", {}).get("speculative_config"):
            self.drafts.append((self._name, drafts["num_speculative_tokens"]))
        if connector and "storage" in connector:
            store = Path(connector["storage"].removeprefix("file:"))
            store.mkdir(exist_ok=True)
            self.stores.append(store)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def close(self) -> None:
        pass

    def end(self) -> int:
        return 0

    def open(self) -> dict[str, Any]:
        return {"page_bytes": 1000, "groups": [{"block": 32}]}

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        if request.get("die_step"):
            raise Ended("DEATH", "the process ended with signal 9", "", -1)
        state = {"free_blocks": self.blocks, "blocks": 100, "requests": 0, "preemptions": 0}
        self._spoils(self._name, state)
        return state

    def generate(self, requests: list[dict[str, Any]], *_: Any) -> dict[str, Any]:
        answers = []
        for one in requests:
            said = tokens_of(one["tokens"], one.get("max_tokens", 1))
            answer = {"tokens": said, "top": [{str(token): -1.0} for token in said], "cached": 0}
            self._spoils(self._name, answer | {"asked": one})
            answers.append(answer)
        return {"answers": answers}


def played(
    folder: Path, spoils: Callable[[str, dict[str, Any]], None], requests: int = 60
) -> Judged:
    return Player(
        "llama",
        lambda **given: Engine(spoils, **given),  # type: ignore[arg-type,return-value]
        folder,
        seed=1,
        faults=True,
        requests=requests,
        shown=lambda found: False,
    ).play()


def test_an_engine_that_is_right_is_found_right(tmp_path: Path) -> None:
    Engine.drafts.clear()
    found = played(tmp_path, lambda *_: None, 600)
    assert {*Engine.drafts} == {(CONNECTOR, 3), (OWN, 3)}, "the truth has no drafts"
    assert (found.error, found.failures) == ("", [])
    assert found.kills == found.lives - 1 >= 1
    for side in found.sides.values():
        assert side.answers == {"same": found.requests}
    assert verdict(Total({"llama": found}))[0].startswith("None of 6")


@pytest.mark.parametrize("requests", [1, 20, 33])
def test_as_many_requests_are_judged_as_were_asked_for(requests: int, tmp_path: Path) -> None:
    found = played(tmp_path, lambda *_: None, requests)
    assert found.requests == requests
    assert {side.answers.total() for side in found.sides.values()} == {requests}


@pytest.mark.parametrize("side", [CONNECTOR, OWN])
def test_a_wrong_answer_is_found_on_the_side_that_gives_it(side: str, tmp_path: Path) -> None:
    def spoils(name: str, answer: dict[str, Any]) -> None:
        if name == side and answer.get("asked", {}).get("salt") == "two":
            answer["tokens"][-1] += 1
            answer["top"][-1] = {str(answer["tokens"][-1]): -1.0}

    found = played(tmp_path, spoils)
    assert {(one.kind, one.side, one.code) for one in found.failures} == {("WRONG", side, 12)}
    assert "token" in found.failures[0].text
    assert not found.sides[CONNECTOR if side == OWN else OWN].answers["wrong"]


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        ({"free_blocks": 98}, "LEAK", "2 of 100 blocks of vLLM are not free"),
        ({"held_blocks": 3}, "LEAK", "3 blocks held by the connector"),
        ({"core_flights": 1}, "LEAK", "1 actions of the core without a reply"),
        ({"broken": True}, "BROKEN", "an unforeseen error"),
    ],
)
def test_what_is_held_afterwards_is_found(
    state: dict[str, Any], kind: str, text: str, tmp_path: Path
) -> None:
    def spoils(name: str, found: dict[str, Any]) -> None:
        if name == CONNECTOR and "blocks" in found:
            found |= state

    found = played(tmp_path, spoils)
    assert {one.kind for one in found.failures} == {kind}
    assert text in found.failures[0].text


def test_a_process_that_dies_is_found(tmp_path: Path) -> None:
    def spoils(name: str, answer: dict[str, Any]) -> None:
        if name == OWN and len(answer.get("asked", {}).get("tokens", ())) % 7 == 3:
            raise Ended("DEATH", "the process ended with signal 11", "Segmentation fault", -1)

    found = played(tmp_path, spoils, 200)
    assert {(one.kind, one.side) for one in found.failures} == {("DEATH", OWN)}
    assert found.failures[0].text == "the process ended with signal 11: Segmentation fault"


def test_nothing_is_held_by_an_engine_at_rest() -> None:
    rest = {"free_blocks": 5, "blocks": 5, "requests": 0, "held_blocks": 0}
    assert held(rest) == []
    assert held(rest | {"requests": 1}) == ["1 requests of vLLM"]


# -- the report, and the command


def failed(side: str) -> Failure:
    asked = [[(Request((1, 2), 3), (1, 2))], "drop", [(Request((1, 2), 3, "one"), (1, 2))]]
    settings = {"engine": {"max_model_len": 640}, "connector": None, "chunk": 64}
    return Failure("WRONG", side, 0, 1, 1, "token 0: 5 in place of 6", settings, tuple(asked))


def test_the_document_and_its_page_agree(tmp_path: Path, capsys: Capsys) -> None:
    clean = played(tmp_path, lambda *_: None)
    wrong = Judged("gemma3", 5, failures=[failed(OWN)])
    clean.faults["flip"] += 1
    total = Total({"llama": clean, "gemma3": wrong}, {("gemma3", 0): ["found/x.py"]})
    settings: dict[str, object] = {"engine": "vllm", "seed": 1}
    found = document(total, settings, "hicache prove --engine vllm")
    compare("hicache prove --engine vllm", [json.loads(json.dumps(found))])
    assert total.code == found["exit_code"] == 12
    with (tmp_path / "shown").open("w") as stream:
        show(total, settings, stream)
    said = (tmp_path / "shown").read_text()
    for text in ("12 WRONG gemma3 vllm: life 0, sequence 1, request 1", "found/x.py"):
        assert text in said
    assert "Wrong answers with vLLM's own cache alone: gemma3." in verdict(total)


def test_families_that_say_too_little_are_not_judged() -> None:
    jumps = Judged("llama", 100)
    jumps.sides[OWN].answers.update(same=94, jumped=6)
    assert Total({"llama": jumps}).code == 17
    jumps.sides[OWN].answers["same"] = 1000
    assert Total({"llama": jumps}).code == 0
    total = Total({"llama": jumps, "gemma3": Judged("gemma3", error="no kernel")})
    assert total.code == 17
    assert "gemma3 did not run to its end: no kernel" in verdict(total)


def test_the_script_of_a_wrong_answer_has_only_calls_of_vllm() -> None:
    text = script(failed(OWN), "llama", 0, 1e-5, 6)
    ast.parse(text)
    assert "hicache" not in text
    assert '"tokens": [1, 2]' in text
    assert "drop" not in text
    assert "CHUNK = 64" in text


def test_every_plant_is_made() -> None:
    [made] = [
        node.value
        for node in ast.parse(PLANTED.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PLANTED"
    ]
    assert isinstance(made, ast.Dict)
    assert [ast.literal_eval(key) for key in made.keys if key] == [*plants.PLANTS]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--family", "alpaca"), "--family: expected a list of llama, .*gemma3, .*found 'alpaca'"),
        (("--plant", "nothing"), "--plant: expected one of page-of-another, .*found 'nothing'"),
        (("--passes", "5"), "--passes and --engine do not go together"),
        (("--dtype", "bf16"), "--dtype and --engine do not go together"),
        (("--python", "/none"), "expected one with vLLM, found no file /none; make engines"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], message: str, capsys: Capsys) -> None:
    pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)
    assert re.search(message, fails(capsys, "prove", "--engine", "vllm", *options))


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("plant", "code"), [("", 0), ("page-of-another", 12)])
def test_vllm_is_judged(plant: str, code: int, tmp_path: Path) -> None:
    python = vllm_python()
    words = ["--family", "llama", "--requests", "60", "-o", str(tmp_path / "found")]
    words += ["--json", str(tmp_path / "out.json"), *(["--plant", plant] if plant else [])]
    assert main(["prove", "--engine", "vllm", "--python", python, *words]) == code
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["exit_code"] == code
    assert plant or found["families"][0]["requests"] >= 60
