"""`hicache size --slo`: the cheapest machine that serves, against replays of every candidate; the
search for it, which needs few trials; what it says of others; how sure it is; bad input."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traces.cli import main
from traces.deciding.answer import sentences
from traces.html.document import read_report
from traces.sizing import decision as decision_module
from traces.sizing import plan, sampling
from traces.sizing.candidates import Candidate
from traces.sizing.confidence import how_sure
from traces.sizing.decision import Decision, Row
from traces.sizing.trials import Search, Trials
from traces.sweeping import work

from ..bench import purchases
from .rig import Capsys, Patch
from .test_json_docs import compare

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("seed", [pytest.param(seed, id=f"workload {seed}") for seed in range(6)])
def test_the_answer_and_every_reason_are_those_of_trying_everything(
    seed: int, tmp_path: Path
) -> None:
    fewer = {"tp": (1, 2), "replicas": (1, 3), "hosts": (0, 16 * purchases.GB)}
    found, serving = purchases.tried(seed, tmp_path, **fewer)
    _check(found, serving)


def _check(found: Decision, serving: list[bool]) -> None:
    first = next((place for place, serves in enumerate(serving) if serves), None)
    cost = None if found.answer is None else found.rows[found.answer].cost
    assert cost == (None if first is None else found.rows[first].cost)
    if found.answer is not None:
        answer = found.rows[found.answer]
        for row in found.rows:
            if row.served and row.cost == cost:
                assert _kept(row) <= _kept(answer), row.candidate.label
            elif row.cost == cost and row.candidate.host_bytes == answer.candidate.host_bytes:
                assert row.served is False or row.why != "costs more", row.candidate.label
    for place, row in enumerate(found.rows):
        if row.served is not None:
            assert row.served == serving[place], row.candidate.label
        elif row.why != "costs more":
            same = row.why.startswith("hits what")
            assert same or not serving[place], f"{row.candidate.label}: {row.why}"
    costs = [row.cost for row in found.rows]
    assert costs == sorted(costs)
    for flip in found.sure.flips:
        assert flip.at is None or flip.at > flip.holds >= 1


def _kept(row: Row) -> float:
    assert row.found is not None
    return float(row.found["slo"]["attained_rate"])


def test_of_machines_at_one_price_the_answer_keeps_the_limits_of_most() -> None:
    """The search ends with the first that serves; those at its price with its host memory and store
    are replayed too, but not one that failed, is ruled out, or has more memory or a store. The
    first candidate is not worth a replay."""
    offered = [  # what it is, its cost, and which part of the requests it would keep the limits of
        (Candidate("h100", 1, 1, 16), 1.0, 0.5),  # hits what another one hits
        (Candidate("h100", 2, 1), 1.0, 0.5),
        (Candidate("h100", 4, 1), 2.0, 0.92),
        (Candidate("h100", 8, 1), 2.0, 0.95),
        (Candidate("h100", 16, 1), 2.0, 0.99),  # ruled out
        (Candidate("h100", 32, 1, 16), 2.0, 0.99),
        (Candidate("h100", 64, 1, 0, True), 2.0, 0.99),
        (Candidate("h100", 128, 1), 3.0, 0.99),
    ]
    machines = [one for one, _, _ in offered]
    documents = [{"slo": {"attained_rate": kept}} for _, _, kept in offered]
    known: dict[int, Any] = {2: documents[2]}
    asked: list[int] = []

    def replay(wanted: list[tuple[int, Any]]) -> None:
        asked.extend(one for one, _ in wanted)
        known.update({one: documents[one] for one, _ in wanted})

    def serves(found: Any) -> bool:
        return bool(found) and found["slo"]["attained_rate"] >= 0.9

    trials: Any = SimpleNamespace(
        candidates=machines, known=known.get, serves=serves, documents=replay
    )
    search = Search(7, lambda one, other: False, lambda one: 1.0, 1.0)
    search.tried(0, serves=False)
    search.tried(1, serves=True)
    search.ruled_out[3] = 0
    costs = {one: cost for one, cost, _ in offered}
    found = decision_module._best(range(1, 8), search, trials, costs)
    assert (found, asked) == (3, [3])


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("decision")
    purchases.workload(folder / "trace.jsonl", random.Random(3))
    out, page = folder / "out.json", folder / "page.html"
    words = [str(folder / "trace.jsonl"), "--model", "llama-3.1-8b", "--slo", "ttft=2s,tpot=50ms"]
    words += ["--hardware", "h100,h200", "--tp", "1", "--most-gpus", "4", "--host-bytes", "0,16GB"]
    words += ["--speed", "0.15"]
    words += ["--today", "1xh100", "--jobs", "1", "--json", str(out), "-o", str(page)]
    assert main(["size", *words]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert read_report(str(page))["verdict"]["sentences"] == found["verdict"]["sentences"]
    return found


def test_the_document_says_what_was_bought_and_what_was_not(document: dict[str, Any]) -> None:
    decision = document["decision"]
    answer, rows = decision["answer"], decision["candidates"]
    assert answer in rows
    assert answer["served"]
    assert len(rows) == 2 * 4 * 2  # accelerators, replicas, sizes of host memory
    for one in rows:
        cheaper = one["cost_per_hour"] < answer["cost_per_hour"]
        assert not (cheaper and one["served"])
        assert one["why"] or one["served"] is not None
        if one["goodput_per_cost"] is not None:
            value = one["goodput_requests_per_s"] * 3600 / one["cost_per_hour"]
            assert one["goodput_per_cost"] == pytest.approx(value)
    today = decision["today"]
    assert (today["hardware"], today["gpus"]) == ("h100", 1)
    assert document["variants"][0]["label"] == answer["label"] == document["verdict"]["best"]
    told = document["verdict"]["sentences"]
    assert told == sentences(decision)
    assert any("h100" in one and one.startswith("Today's") for one in told) or answer == today


def test_what_is_moved_past_a_limit_changes_the_answer(document: dict[str, Any]) -> None:
    sure = document["decision"]["confidence"]
    label = document["decision"]["answer"]["label"]
    assert {flip["what"] for flip in sure["flips"]} == {"passes", "load"}
    for flip in sure["flips"]:
        known = [
            one for one in sure["tried"] if one["what"] == flip["what"] and one["label"] == label
        ]
        for one in known:
            assert one["served"] == (one["factor"] <= flip["holds"])
    dearer = [one for one in sure["tried"] if one["what"] == "passes" and one["factor"] < 1]
    assert all(one["label"] != label for one in dearer)


SAMPLED = ["--hardware", "h100,h200", "--tp", "1", "--most-gpus", "2", "--host-bytes", "0,16GB"]


@pytest.mark.parametrize("way", ["--sample", "--budget"])
def test_a_part_of_a_long_trace_is_replayed_and_the_whole_is_named(
    way: str, tmp_path: Path
) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    out, points = tmp_path / "out.json", tmp_path / "points.jsonl"
    words = [str(tmp_path / "trace.jsonl"), "--slo", "ttft=2s", *SAMPLED, "--speed", "0.15"]
    words += ["--jobs", "1", "--json", str(out), "--points", str(points)]
    words += {"--sample": [way, "0.5"], "--budget": [way, "3s"]}[way]
    assert main(["size", *words]) == 0
    document = json.loads(out.read_text())
    found, part = document["decision"], document["decision"]["sample"]
    assert 0 < part["part"] < 1
    assert 0 < part["requests"] < found["demand"]["requests"] == 160
    assert 0 <= part["hit_rate_error_mean"] <= part["hit_rate_error_most"] < 1
    assert document["prefixes"] is None
    _check_keys(found)
    kept = [json.loads(line) for line in points.read_text().splitlines()]
    played = [one["config"] for one in kept if one.get("variant")]
    named = [one["config"] for one in document["variants"]]
    assert {one["speed"] for one in named} == {0.15}
    assert {one["device_pages"] for one in named} <= {one["device_pages"] for one in played}
    assert any(one.startswith("Replayed were") for one in document["verdict"]["sentences"])


@pytest.mark.parametrize("asked", [[], ["--sample", "1"]])
def test_the_whole_is_replayed_unless_a_part_is_asked_for(
    asked: list[str], tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    out = tmp_path / "out.json"
    words = [str(tmp_path / "trace.jsonl"), "--slo", "ttft=2s", *SAMPLED, *asked]
    monkeypatch.setattr(sampling, "_LONG_S", 0.1)
    assert main(["size", *words, "--limit", "40", "--jobs", "1", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["decision"]["sample"] is None
    assert ("takes hours; --sample 0.25" in capsys.readouterr().err) == (not asked)


def test_every_key_is_described(document: dict[str, Any]) -> None:
    _check_keys(document["decision"])


def _check_keys(found: dict[str, Any]) -> None:
    one = deepcopy(found) | {"answer": None, "runner_up": None, "today": None}
    one["confidence"] = one["confidence"] | {"rivals": []}
    errors = ("hit_rate_error_mean", "hit_rate_error_most", "attained_error")
    none = dict.fromkeys(("part", "requests", *errors), 0)
    one["sample"] = one["sample"] or none
    one["refused"] = [{"reason": "too large", "machines": ["1 x h100"]}]
    known = [["prices", "per_hour"], ["confidence", "flips"]]
    assert all(one[above][name] for above, name in known)
    for flip in one["confidence"]["flips"]:
        flip["to"] = None
    compare("hicache size", [{"decision": one}])


def test_what_a_log_does_not_say_is_bounded(tmp_path: Path, capsys: Capsys) -> None:
    """The second turn of each session repeats its first, or nothing."""
    rows = ["ts,prompt,answer,chat"]
    for number in range(60):
        rows += [f"{number * 2},9000,20,{number}", f"{number * 2 + 60},18000,20,{number}"]
    rows[1:] = sorted(rows[1:], key=lambda row: int(row.split(",")[0]))
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    columns = "time=ts:s,input=prompt,output=answer,session=chat"
    words = [str(tmp_path / "log.csv"), "--columns", columns]
    words += ["--model", "llama-3.1-8b", "--slo", "ttft=600ms", "--hardware", "h100,h200"]
    words += ["--tp", "1", "--replicas", "1", "--host-bytes", "0,200GB", "--jobs", "1"]
    assert main(["size", *words, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())["decision"]
    tried = {one["what"]: one for one in found["confidence"]["tried"]}
    assert tried["sharing most"]["served"]
    assert not tried["sharing none"]["served"]
    assert "The answer does not hold if none did." in " ".join(capsys.readouterr().out.split())


def test_points_are_kept_and_not_replayed_again(tmp_path: Path, monkeypatch: Patch) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    points, out = tmp_path / "points.jsonl", tmp_path / "out.json"
    words = ["size", str(tmp_path / "trace.jsonl"), "--slo", "ttft=1s", "--limit", "60"]
    words += ["--hardware", "h100,h200", "--tp", "1", "--most-gpus", "2", "--host-bytes", "0"]
    words += ["--speed", "0.3", "--jobs", "1", "--points", str(points), "--json", str(out)]
    found = []
    for _ in range(2):
        assert main(words) == 0
        found.append(json.loads(out.read_text()))
        monkeypatch.setattr(work.PointWork, "__call__", None)
    assert found[0]["decision"] == found[1]["decision"]
    assert found[0]["variants"] == found[1]["variants"]
    kept = [json.loads(line) for line in points.read_text().splitlines()]
    assert any("stopped" in one for one in kept)
    whole = [one["label"] for one in kept if one.get("variant")]
    assert len(read_report(str(points))["variants"]) == len(whole)


def decision(**changed: Any) -> dict[str, Any]:
    """A decision in a document."""

    def row(label: str, cost: float, kept: float | None, **more: Any) -> dict[str, Any]:
        return {
            "label": label,
            "hardware": "h100",
            "tp": 1,
            "pp": 1,
            "replicas": 2,
            "gpus": 2,
            "host_bytes": 0,
            "stored": False,
            "cost_per_hour": cost,
            **{f"ttft_{name}_s": 0.5 for name in ("p50", "p90", "p99")},
            "goodput_requests_per_s": 3.0,
            "goodput_per_cost": 1_700.0,
            "why": "",
            "attained_rate": kept,
            "served": kept is not None and kept >= 0.9,
            **more,
        }

    answer, second = row("2 x h100", 6.4, 0.934), row("2 x h200", 7.98, 0.951)
    found = {
        "answer": answer,
        "runner_up": second,
        "today": row("1 x h100", 3.2, None, why="121 of the first 130 requests missed the limits"),
        "limits": "TTFT 2 s and TPOT 50 ms",
        "attain": 0.9,
        "demand": {
            "requests": 12_031,
            "requests_per_s": 3.34,
            "input_tokens": 144_793_823,
            "output_tokens": 4_000_000,
        },
        "prices": {"per_hour": {"h100": 3.2, "h200": 3.99}, "source": "a list", "currency": "USD"},
        "confidence": {
            "pass_error": 0.07,
            "sample_error": 0.0,
            "judged": True,
            "tried": [],
            "flips": [],
            "rivals": [],
        },
        "sample": None,
        "candidates": [answer, second],
        "replays": 12,
    }
    return found | changed


def test_the_first_sentence_is_the_one_to_forward() -> None:
    told = sentences(decision())
    assert told[0] == (
        "Buy 2 x h100 for 6.40 USD an hour: 93.4 % of the requests keep TTFT 2 s and TPOT 50 ms at "
        "the load that was played, 3.34 requests a second."
    )
    assert told[1] == ("Next is 2 x h200 for 7.98 USD an hour, 25 % more; 95.1 % keep the limits.")
    assert told[2] == (
        "Today's 1 x h100 does not serve it: 121 of the first 130 requests missed the limits."
    )


def test_nothing_that_meets_the_limits_is_an_answer() -> None:
    found = decision(answer=None, runner_up=None, today=None)
    found["candidates"] = [found["candidates"][0] | {"attained_rate": 0.6, "served": False}]
    assert sentences(found)[0] == (
        "Nothing that was tried meets the limits at the load that was played, 3.34 requests a "
        "second: at most 60.0 % of the requests keep TTFT 2 s and TPOT 50 ms with 2 x h100, and "
        "90 % should. Try more GPUs (--most-gpus), or other limits."
    )


def test_a_search_that_did_not_end_says_what_it_has_seen() -> None:
    found = decision(answer=None, runner_up=None, today=None)
    assert sentences(found, complete=False)[0] == (
        "The search did not end. The cheapest machine that was seen to serve so far is 2 x h100 "
        "for 6.40 USD an hour: 93.4 % of the requests keep TTFT 2 s and TPOT 50 ms at the load "
        "that was played, 3.34 requests a second. A cheaper one may serve, too."
    )
    found["candidates"] = [found["candidates"][0] | {"attained_rate": None, "served": False}]
    assert sentences(found, complete=False)[0] == (
        "The search did not end: nothing of what was replayed so far meets the limits."
    )
    told = sentences(decision(), complete=False)
    assert told[1] == "The run did not end: it is not known how sure this is."


def test_what_has_no_price_is_named() -> None:
    found = decision()
    assert sentences(found)[-1] == "Prices USD an hour, from a list: h100 3.2, h200 3.99."
    found["candidates"][1] |= {"host_bytes": 10**9}
    assert sentences(found)[-1].endswith(
        "What has no price counts as free: host memory (host=AMOUNT/GB/h)."
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--today", "3xh100,tp=2"], "expected a multiple of 2 GPUs (tp), found 3"),
        (["--today", "h100;2"], "expected a machine such as 2xh100,tp=2,host=512GB"),
        (["--storage", "sim:foo=1"], "--storage sim: expected some of read, write, latency"),
        (["--attain", "1.5"], "expected a part of the requests such as 0.9 or 95%"),
        (["--price", "h100=3/GB"], "expected h100=AMOUNT or h100=AMOUNT/h, found h100=3/GB"),
        (["--price", "h101=3/h"], "expected prices of gpu, host, storage, an accelerator"),
        (["--sample", "0.5", "--budget", "9s"], "--budget and --sample do not go together"),
        (["--sample", "1.5"], "expected at most 1, found '1.5'"),
        (["--sample", "0.0001"], "--sample: expected a part with at least one request, found none"),
        (["--hardware", "l40s,h100"], "--price: expected a price of l40s, found none; add l40s="),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], expected: str, tmp_path: Path, capsys: Capsys
) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(1))
    path = str(tmp_path / "trace.jsonl")
    try:
        code = main(["size", path, "--slo", "ttft=2s", "--limit", "5", *words])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    error = capsys.readouterr().err
    assert expected in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("most", "why"),
    [
        (0.0, ""),  # it cannot be told
        (0.79, "its work takes 1.3 times as long as the trace"),
        (0.81, ""),
        (1.0, ""),
        (1.2, ""),
    ],
)
def test_only_work_that_takes_clearly_longer_than_the_trace_rules_out(
    most: float, why: str
) -> None:
    """most: times the work of the trace that a machine does at most."""
    machines: Any = SimpleNamespace(at_most=lambda one: most, alone=lambda *machine: 1.0)
    unused: Any = None
    trials = Trials((), unused, machines, unused, Fraction(9, 10), 1)
    assert trials.cannot(Candidate("h100", 1, 1)) == why


@pytest.mark.parametrize("holds", ["1", "1.05"])
def test_a_dearer_one_is_a_rival_if_the_answer_fails_at_its_own_error(holds: str) -> None:
    """holds: how many times as long passes may take until the answer does not serve any more."""
    answer, dearer = Candidate("h100", 1, 1), Candidate("h200", 1, 1)

    def document(one: int, moved: Any) -> dict[str, Any]:
        slower = moved.keywords["factor"] if moved.func is plan.slower_passes else 1
        fails = one == 0 and slower > Fraction(holds)
        return {"slo": {"attained_rate": 0.5 if fails else 1.0}}

    trials: Any = SimpleNamespace(
        candidates=[answer, dearer],
        attain=Fraction(9, 10),
        over=False,
        cannot=lambda one: "",
        documents=lambda wanted: [document(*one) for one in wanted],
        serves=lambda found: found["slo"]["attained_rate"] >= 0.9,
    )
    machines: Any = SimpleNamespace(likely=lambda one: 1.0 + 9 * (one is dearer))
    found = {
        "slo": {"attained_rate": 1.0},
        "expected_error": {"tpot": {"runs": 5, "median": 0.05}},
    }
    sure = how_sure(0, found, [found, None], trials, machines, seeds=())
    assert sure.rivals == ([(dearer, "passes")] if holds == "1" else [])


def test_a_total_is_named_once() -> None:
    assert Candidate("h100", 2, 3, 512 * 10**9).label == (
        "6 x h100 (3 replicas, each tp 2) with 512 GB of host memory each, 1.536 TB in all"
    )
    assert Candidate("h100", 1, 1).label == "1 x h100"


Offer = tuple[int, int, int]  # a kind, and two amounts


def drawn(seed: int) -> tuple[list[Offer], list[float], set[int]]:
    """Offers in the order of their costs, what each can really do, and which of them serve."""
    draw = random.Random(seed)
    price = {kind: draw.uniform(0.5, 3) for kind in range(4)}
    speed = {kind: draw.uniform(0.5, 3) for kind in range(4)}
    memory, helps = draw.uniform(0.01, 0.5), draw.uniform(0, 0.4)
    offers = list(product(range(4), range(1, 9), range(5)))
    offers.sort(key=lambda one: one[1] * (price[one[0]] + memory * one[2]))
    can_do = [speed[kind] * count * (1 + helps * size) for kind, count, size in offers]
    demand = draw.uniform(0.5, 20)
    return offers, can_do, {at for at, does in enumerate(can_do) if does >= demand}


def searched(seed: int, wrong_by: float, most: int = 1) -> tuple[int | None, int | None, int, int]:
    """The answer, that of trying all, the trials, and the offers. wrong_by: how far the guess is
    from the truth."""
    offers, can_do, serving = drawn(seed)
    draw = random.Random(-seed)
    guesses = [does * draw.uniform(1 / wrong_by, wrong_by) for does in can_do]

    def weaker(one: int, other: int) -> bool:
        first, second = offers[one], offers[other]
        return first[0] == second[0] and first[1] <= second[1] and first[2] <= second[2]

    search = Search(len(offers), weaker, guesses.__getitem__, 1.0)
    trials = 0
    while wanted := search.next(most):
        assert len(set(wanted)) == len(wanted) <= most
        trials += len(wanted)
        for one in wanted:
            search.tried(one, one in serving)
    return search.answer, min(serving, default=None), trials, len(offers)


@pytest.mark.parametrize("wrong_by", [1.0, 2.0, 50.0])
@pytest.mark.parametrize("most", [1, 6])
def test_the_answer_is_that_of_trying_everything(wrong_by: float, most: int) -> None:
    for seed in range(60):
        found, true, *_ = searched(seed, wrong_by, most)
        assert found == true, seed


def test_few_trials_are_needed() -> None:
    part = []
    for seed in range(40):
        _, _, trials, offers = searched(seed, 2.0)
        part.append(trials / offers)
    assert sum(part) / len(part) < 0.2
