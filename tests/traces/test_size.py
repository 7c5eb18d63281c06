"""`hicache size`: what is offered, what a candidate can do at most, and the search for the cheapest
that serves, against replays of every candidate; what it says; what is refused."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traces.cli import main
from traces.curves import lru_curve
from traces.formats._open import open_trace
from traces.html import read_report
from traces.sizing import decision as module
from traces.sizing import search as searching
from traces.sizing.candidates import (
    LITTLE,
    MOST_SIZES,
    NEARLY_ALL,
    Candidate,
    Demand,
    Machines,
    cost_of,
    demand_of,
    ladder,
)
from traces.sizing.decision import Decision, Row, _best, _Looks
from traces.sizing.prices import Prices
from traces.sizing.search import Search, slower_passes
from traces.sweeping import work
from traces.sweeping.outcome import outcome_of

from ..bench import purchases
from .rig import Capsys, Patch, mooncake, replayed, write
from .test_json_docs import compare

pytestmark = pytest.mark.usefixtures("here")

GB = 10**9
FEW = ["--tp", "1", "--most-gpus", "2", "--host-bytes", "0,16GB", "--jobs", "1"]


# -- what is offered


@pytest.mark.parametrize("device", [1, 10, 40, 1000])
def test_sizes_of_host_memory_reach_nearly_every_hit(device: int, tmp_path: Path) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    trace = open_trace(str(tmp_path / "trace.jsonl"))
    curve, tokens = lru_curve(trace.paged(512)), trace.jobs.input_tokens
    enough = curve.pages_for(NEARLY_ALL * curve.unbounded)
    known = curve.hit_tokens(device)
    for page_bytes in (GB // 100, GB // 4, 3 * GB):
        sizes = ladder(curve, tokens, page_bytes, device)
        assert bool(sizes) == (curve.unbounded - known >= LITTLE * tokens)
        assert len(sizes) <= MOST_SIZES
        assert all(small < large for small, large in pairwise(sizes))
        if sizes:
            assert sizes[0] >= device * page_bytes, "less than the device has holds nothing more"
            assert sizes[-1] >= enough * page_bytes
            assert curve.hit_tokens(sizes[0] // page_bytes) >= known + LITTLE * tokens
    for exclusive in (False, True):
        assert ladder(curve, tokens, GB, 10 * enough, exclusive) == ()


def test_every_accelerator_is_counted_and_named_once(tmp_path: Path) -> None:
    """Two replicas of two stages of three ranks; and what a replay of such a machine has."""
    assert cost_of(Candidate("h100", 3, 2, pp=2), Prices({"h100": 2.0}), 0) == 24
    words = ["--tp", "4", "--pp", "2", "--replicas", "2", "--limit", "3"]
    found = replayed(tmp_path, str(write(tmp_path / "t.jsonl", mooncake([1]))), *words)
    assert outcome_of(found | {"label": "", "point": {}, "key": ""}).gpus == 16
    labels = {
        Candidate("h100", 1, 1): "1 x h100",
        Candidate("h100", 2, 1, pp=4): "8 x h100 (tp 2, pp 4)",
        Candidate("h100", 1, 3, pp=2): "6 x h100 (3 replicas, each pp 2)",
        Candidate("h100", 2, 3, 512 * GB): (
            "6 x h100 (3 replicas, each tp 2) with 512 GB of host memory each, 1.536 TB in all"
        ),
    }
    assert {one: one.label for one in labels} == labels


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "--slo: expected the limits that requests must keep, found none"),
        ("--slo ttft=2s --mode hits", "--mode hits: a machine is judged by its times"),
        ("--slo ttft=2s --sample 0.5 --budget 9s", "--budget and --sample do not go together"),
        ("--slo ttft=2s --sample 1.5", "expected at most 1, found '1.5'"),
        ("--slo ttft=2s --sample 0.0001", "--sample: expected a part with at least one request"),
        ("--slo ttft=2s --device-pages 1", "trace.jsonl:"),
        ("--slo ttft=2s -o a.html --points a.html", "--points: expected another file"),
        ("--slo ttft=2s --today 3xh100,tp=2", "expected a multiple of 2 GPUs (tp), found 3"),
        ("--slo ttft=2s --today h100;2", "expected a machine such as 2xh100,tp=2,host=512GB"),
        ("--slo ttft=2s --storage sim:foo=1", "--storage sim: expected some of read, write"),
        ("--slo ttft=2s --attain 1.5", "expected a part of the requests such as 0.9 or 95%"),
        ("--slo ttft=2s --price h100=3/GB", "expected h100=AMOUNT or h100=AMOUNT/h, found"),
        ("--slo ttft=2s --price h101=3/h", "expected prices of gpu, host, storage, an accel"),
        ("--slo ttft=2s --hardware l40s,h100", "--price: expected a price of l40s, found none"),
        ("--slo ttft=2s --pp 16", "--pp: expected stages for the 8 GPUs of a machine"),
        ("--slo ttft=2s --pp 33 --tp 1 --hardware h100", "--pp: expected 1 to 32 stages"),
    ],
)
def test_what_cannot_be_costs_no_replay(
    words: str, said: str, tmp_path: Path, capsys: Capsys
) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(1))
    assert main(["size", str(tmp_path / "trace.jsonl"), "--limit", "5", *words.split()]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


# -- what a candidate can do


@pytest.mark.parametrize("pp", [1, 2])
def test_only_a_machine_with_as_much_of_everything_is_stronger(pp: int, tmp_path: Path) -> None:
    path = str(write(tmp_path / "t.jsonl", *(mooncake([n], timestamp=n) for n in range(9))))
    options, _ = purchases.asked_of(path, "ttft=2s")
    trace = work.Traces()(options)
    machines = Machines(options, trace, demand_of(trace, Fraction(1)), None)
    one = Candidate("h100", 2, 1, pp=pp)
    for other, stronger in (
        (one, True),
        (Candidate("h200", 2, 1, pp=pp), True),
        (Candidate("h100", 2, 1, GB, pp=pp), True),
        (Candidate("h200", 2, 2, pp=pp), False),  # each replica has a cache of its own
        (Candidate("h200", 4, 1, pp=pp), False),
        (Candidate("h200", 2, 1, pp=pp + 1), False),
    ):
        assert machines.weaker(one, other) == stronger
        assert one == other or not machines.weaker(other, one)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_machine_serves_more_than_can_be_in_time(seed: int, tmp_path: Path) -> None:
    """More requests than are said to be in time keep the limit in no replay."""
    options, _ = purchases.drawn(seed, tmp_path)
    trace = work.Traces()(options)
    curve = lru_curve(trace.paged(trace.block_size))
    machines = Machines(options, trace, demand_of(trace, Fraction(1)), curve)
    for name, tp, replicas, host in (("h100", 1, 3, 0), ("l40s", 2, 2, 16)):
        one = Candidate(name, tp, replicas, host * GB)
        words = [f"--hardware={name}", f"--tp={tp}", f"--host-bytes={host}GB", "--slo=ttft=300ms"]
        words += [f"--replicas={replicas}"] if replicas > 1 else []
        found = replayed(tmp_path, str(options.trace), "--model", "llama-3.1-8b", *words)
        limited = Machines(
            purchases.asked_of(str(options.trace), "ttft=300ms")[0],
            *(trace, demand_of(trace, Fraction(1)), curve),
        )
        kept = found["slo"]["attained_rate"]
        assert kept <= limited.in_time(one, 1.1) + 1e-9
        assert limited.in_time(one) <= limited.in_time(one, 1.1)
    assert machines.likely(Candidate("h100", 2, 4)) > machines.likely(Candidate("l40s", 1, 1))


def test_a_queue_is_counted_request_by_request() -> None:
    """Work of a second each, two replicas; arrivals at once, and far apart."""
    slo = SimpleNamespace(ttft_ns=1_600_000_000)
    for arrivals, in_time in (([0.0] * 4, 0.5), ([0.0, 9.0, 18.0, 27.0], 1.0), ([], 1.0)):
        demand = Demand(4, 4, 4, 27.0, np.ones(4, dtype=np.int64), np.array(arrivals))
        machines = Machines(SimpleNamespace(slo=slo), None, demand, None)  # type: ignore[arg-type]
        machines._work_s = lambda one: np.ones(4)  # type: ignore[method-assign,assignment,return-value]
        assert machines.in_time(Candidate("h100", 1, 2)) == in_time
        assert machines.in_time(Candidate("h100", 1, 2), 2.0) == 1


# -- the search

Offer = tuple[int, int, int]  # a kind, and two amounts


def searched(seed: int, wrong_by: float, most: int = 1) -> tuple[int | None, int | None, float]:
    """The answer, that of trying all, and the part of the offers that was tried. wrong_by: how far
    the guess is from the truth."""
    draw = random.Random(seed)
    price, speed = ({kind: draw.uniform(0.5, 3) for kind in range(4)} for _ in range(2))
    memory, helps = draw.uniform(0.01, 0.5), draw.uniform(0, 0.4)
    offers: list[Offer] = list(product(range(4), range(1, 9), range(5)))
    offers.sort(key=lambda one: one[1] * (price[one[0]] + memory * one[2]))
    can_do = [speed[kind] * count * (1 + helps * size) for kind, count, size in offers]
    demand = draw.uniform(0.5, 20)
    serving = {at for at, does in enumerate(can_do) if does >= demand}
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
    return search.answer, min(serving, default=None), trials / len(offers)


@pytest.mark.parametrize("wrong_by", [1.0, 2.0, 50.0])
@pytest.mark.parametrize("most", [1, 6])
def test_the_search_finds_what_trying_everything_finds(wrong_by: float, most: int) -> None:
    found = [searched(seed, wrong_by, most) for seed in range(60)]
    assert all(answer == true for answer, true, _ in found)
    if (wrong_by, most) == (2.0, 1):
        assert sum(part for *_, part in found) / len(found) < 0.2


@pytest.mark.parametrize("seed", [0, 5])
def test_the_answer_and_every_reason_are_those_of_trying_everything(
    seed: int, tmp_path: Path
) -> None:
    fewer = {"hardware": ("a100", "h200"), "tp": (1, 2), "replicas": (1, 2), "hosts": (0, 16 * GB)}
    found, serving = purchases.tried(seed, tmp_path, **fewer)
    first = next((place for place, serves in enumerate(serving) if serves), None)
    cost = None if found.answer is None else found.rows[found.answer].cost
    assert cost == (None if first is None else found.rows[first].cost)
    for place, row in enumerate(found.rows):
        if row.served is not None:
            assert row.served == serving[place], row.candidate.label
        elif row.why != "costs more":
            same = row.why.startswith("hits what")
            assert same or not serving[place], f"{row.candidate.label}: {row.why}"
        if row.served and row.cost == cost:
            assert found.answer is not None
            assert _kept(row) <= _kept(found.rows[found.answer])
    costs = [row.cost for row in found.rows]
    assert costs == sorted(costs)
    assert all(one.at is None or one.at > one.holds >= 1 for one in found.sure.flips)


def _kept(row: Row) -> float:
    assert row.found is not None
    return float(row.found["slo"]["attained_rate"])


def test_of_machines_at_one_price_the_answer_keeps_the_limits_of_most() -> None:
    """Those at the price of the first that serves, with its host memory, are replayed too, but not
    one that failed, is ruled out, or has more memory or a store."""
    offered = [  # what it is, its cost, and which part of the requests it would keep the limits of
        (Candidate("h100", 1, 1, 16), 1.0, 0.5),  # not worth a replay
        (Candidate("h100", 2, 1), 1.0, 0.5),
        (Candidate("h100", 4, 1), 2.0, 0.92),
        (Candidate("h100", 8, 1), 2.0, 0.95),
        (Candidate("h100", 16, 1), 2.0, 0.99),  # ruled out
        (Candidate("h100", 32, 1, 16), 2.0, 0.99),
        (Candidate("h100", 64, 1, 0, True), 2.0, 0.99),
        (Candidate("h100", 128, 1), 3.0, 0.99),
    ]
    documents = [{"slo": {"attained_rate": kept}} for _, _, kept in offered]
    known: dict[int, Any] = {2: documents[2]}
    asked: list[int] = []

    def run(wanted: list[int]) -> None:
        asked.extend(wanted)
        known.update({one: documents[one] for one in wanted})

    trials: Any = SimpleNamespace(
        candidates=[one for one, _, _ in offered],
        known=known.get,
        serves=lambda found: bool(found) and found["slo"]["attained_rate"] >= 0.9,
        run=run,
    )
    search = Search(7, lambda one, other: False, lambda one: 1.0, 1.0)
    search.tried(0, serves=False)
    search.tried(1, serves=True)
    search.ruled_out[3] = 0
    costs = {one: cost for one, cost, _ in offered}
    assert (_best(range(1, 8), search, trials, costs), asked) == (3, [3])


@pytest.mark.parametrize("holds", ["1", "1.05"])
def test_a_dearer_one_is_a_rival_if_the_answer_fails_at_its_own_error(holds: str) -> None:
    """holds: how many times as long passes may take until the answer does not serve any more."""
    answer, dearer = Candidate("h100", 1, 1), Candidate("h200", 1, 1)
    found = {
        "slo": {"attained_rate": 1.0, "attained_error": None},
        "expected_error": {"tpot": {"runs": 5, "median": 0.05}},
    }

    def document(one: int, moved: Any) -> dict[str, Any]:
        move = moved.keywords["move"]
        slower = move.keywords["factor"] if move.func is slower_passes else 1
        fails = one == 0 and slower > Fraction(holds)
        return {"slo": {"attained_rate": 0.5 if fails else 1.0}}

    trials: Any = SimpleNamespace(
        candidates=[answer, dearer],
        machines=SimpleNamespace(likely=lambda one: 1.0 + 9 * (one is dearer), weaker=None),
        attain=Fraction(9, 10),
        ended=work.Measured(),
        known=lambda one: found if one == 0 else None,
        moved=lambda wanted, whole: [document(*one) for one in wanted],
        serves=lambda found: found["slo"]["attained_rate"] >= 0.9,
    )
    sure = _Looks(0, trials, None).sensitivity((), False, 0.0)
    assert sure.rivals == ([(dearer, "passes")] if holds == "1" else [])


# -- what is said


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("decision")
    purchases.workload(folder / "trace.jsonl", random.Random(3))
    out, page = folder / "out.json", folder / "page.html"
    words = [str(folder / "trace.jsonl"), "--model", "llama-3.1-8b", "--slo", "ttft=2s,tpot=50ms"]
    words += ["--hardware", "h100,h200", *FEW, "--speed", "0.15", "--today", "1xh100"]
    assert main(["size", *words, "--json", str(out), "-o", str(page)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert read_report(str(page))["verdict"]["sentences"] == found["verdict"]["sentences"]
    return found


def test_the_document_says_what_was_bought_and_what_was_not(document: dict[str, Any]) -> None:
    decision = document["decision"]
    answer, rows = decision["answer"], decision["candidates"]
    assert answer in rows
    assert answer["served"]
    assert len(rows) == 2 * 2 * 2  # accelerators, replicas, sizes of host memory
    for one in rows:
        assert not (one["cost_per_hour"] < answer["cost_per_hour"] and one["served"])
        assert one["why"] or one["served"] is not None
        assert one["host_bytes_total"] == one["replicas"] * one["host_bytes"]
        if one["goodput_per_cost"] is not None:
            value = one["goodput_requests_per_s"] * 3600 / one["cost_per_hour"]
            assert one["goodput_per_cost"] == pytest.approx(value)
    assert (decision["today"]["hardware"], decision["today"]["gpus"]) == ("h100", 1)
    assert document["variants"][0]["label"] == answer["label"] == document["verdict"]["best"]
    first, error, flips = document["verdict"]["sentences"]
    kept = f"{answer['attained_rate'] * 100:.1f} % of the requests"
    assert f"{answer['label']} for {answer['cost_per_hour']:.2f} USD an hour" in first
    assert kept in first
    assert error.startswith("expected error: TTFT")
    assert flips.startswith("flips: at ")
    sure = decision["confidence"]
    assert {flip["what"] for flip in sure["flips"]} == {"passes", "load"}
    for flip in sure["flips"]:
        for one in sure["tried"]:
            if (one["what"], one["label"]) == (flip["what"], answer["label"]):
                assert one["served"] == (one["factor"] <= flip["holds"])


def test_every_key_is_described(document: dict[str, Any]) -> None:
    found = document["decision"]
    one = found | {"answer": None, "runner_up": None, "today": None}
    one["confidence"] = found["confidence"] | {"rivals": []}
    names = ("part", "requests", "hit_rate_error_mean", "hit_rate_error_most")
    one["sample"] = dict.fromkeys(names, 0)
    one["refused"] = [{"reason": "too large", "machines": ["1 x h100"]}]
    assert found["prices"]["per_hour"]
    for flip in one["confidence"]["flips"]:
        flip["to"] = None
    compare("hicache size", [{"decision": one}])


@pytest.mark.parametrize("limits", ["ttft=2s", "ttft=1ms"])
def test_a_machine_is_a_row_of_the_table(limits: str, tmp_path: Path, capsys: Capsys) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    words = [str(tmp_path / "trace.jsonl"), "--slo", limits, "--speed", "0.15", *FEW]
    assert main(["size", *words, "--hardware", "h100", "--limit", "60"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    told = " ".join(printed.split())
    if limits == "ttft=1ms":
        assert "Nothing that was offered keeps TTFT 1 ms for 90 % of the requests at" in told
        return
    assert told.startswith(("Buy ", "Undecided between "))
    assert len(re.findall(r"^h100 \* +1 +", printed, re.MULTILINE)) == 1
    assert " flips " in told


def test_a_search_that_did_not_end_says_what_it_has_seen(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    words = ["size", str(tmp_path / "trace.jsonl"), "--slo", "ttft=2s", "--speed", "0.15", *FEW]
    words += ["--hardware", "h100,h200", "--limit", "60"]
    plain, calls = work.PointWork.__call__, []

    def ends(self: work.PointWork, task: work.Task) -> dict[str, Any]:
        calls.append(task)
        if len(calls) > most:
            raise KeyboardInterrupt
        return plain(self, task)

    monkeypatch.setattr(work.PointWork, "__call__", ends)
    for most in (0, 3):
        calls.clear()
        assert main(words) == 130
        told = " ".join(capsys.readouterr().out.split())
        assert told.startswith("The search did not end; ")
        assert ("nothing was seen to serve yet" in told) == (most == 0)


# -- a part of a trace, and what a log does not say


@pytest.mark.parametrize("way", ["--sample 0.5", "--budget 1s"])
def test_a_part_of_a_long_trace_is_replayed_and_the_whole_is_named(
    way: str, tmp_path: Path
) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    out, points = tmp_path / "out.json", tmp_path / "points.jsonl"
    words = [str(tmp_path / "trace.jsonl"), "--slo", "ttft=2s", *FEW, "--speed", "0.15"]
    words += ["--hardware", "h100,h200", "--json", str(out), "--points", str(points)]
    assert main(["size", *words, *way.split()]) == 0
    document = json.loads(out.read_text())
    found, part = document["decision"], document["decision"]["sample"]
    assert 0 < part["part"] < 1
    assert 0 < part["requests"] < found["demand"]["requests"] == 160
    assert 0 <= part["hit_rate_error_mean"] <= part["hit_rate_error_most"] < 1
    assert any(one.startswith("replayed: ") for one in document["estimates"])
    kept = [json.loads(line) for line in points.read_text().splitlines()]
    whole = [one for one in kept if "whole" in one]
    assert part["requests"] in {one["trace"]["requests"] for one in whole}
    assert max(one["trace"]["requests"] for one in whole) < 160


def test_a_long_trace_is_answered_by_all_of_it_and_flips_by_a_part(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    out = tmp_path / "out.json"
    words = ["size", str(tmp_path / "trace.jsonl"), "--slo", "ttft=2s", *FEW, "--speed", "0.15"]
    words += ["--hardware", "h100,h200", "--json", str(out)]
    found = []
    for long in (False, True):
        if long:
            for place in (module, searching):
                monkeypatch.setattr(place, "LONG", 150)
            monkeypatch.setattr(module, "PROBED", 100)
        assert main(words) == 0
        found.append(json.loads(out.read_text())["decision"])
    whole, part = found
    assert whole["confidence"]["part_requests"] is None
    assert 0 < part["confidence"]["part_requests"] < 160
    assert part["answer"] == whole["answer"]
    for one, other in zip(*(each["confidence"]["flips"] for each in found), strict=True):
        assert one["what"] == other["what"]
        assert other["at"] is None or other["at"] > other["holds"] >= 1


@pytest.mark.parametrize("asked", [[], ["--sample", "1"]])
def test_the_whole_is_replayed_unless_a_part_is_asked_for(
    asked: list[str], tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    monkeypatch.setattr(module, "_LONG_S", 0.1)
    words = [str(tmp_path / "trace.jsonl"), "--slo", "ttft=1ms", *FEW, "--limit", "40", *asked]
    assert main(["size", *words, "--hardware", "h100", "--json", "out.json"]) == 0
    assert json.loads(Path("out.json").read_text())["decision"]["sample"] is None
    assert ("takes hours; --sample 0.25" in capsys.readouterr().err) == (not asked)


def test_sessions_that_begin_at_one_time_have_no_part(tmp_path: Path, capsys: Capsys) -> None:
    path = write(tmp_path / "trace.jsonl", *(mooncake([one]) for one in range(30)))
    assert main(["size", str(path), "--slo", "ttft=2s", "--sample", "0.5"]) == 2
    said = capsys.readouterr().err
    assert "--sample: expected sessions that begin at different times" in said


def test_what_a_log_does_not_say_is_bounded(tmp_path: Path, capsys: Capsys) -> None:
    """The second turn of each session repeats its first, or nothing."""
    rows = ["ts,prompt,answer,chat"]
    for number in range(60):
        rows += [f"{number * 2},9000,20,{number}", f"{number * 2 + 60},18000,20,{number}"]
    rows[1:] = sorted(rows[1:], key=lambda row: int(row.split(",")[0]))
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    columns = "time=ts:s,input=prompt,output=answer,session=chat"
    words = [str(tmp_path / "log.csv"), "--columns", columns, "--model", "llama-3.1-8b"]
    words += ["--slo", "ttft=600ms", "--hardware", "h100,h200", "--tp", "1", "--replicas", "1"]
    words += ["--host-bytes", "0,200GB", "--jobs", "1", "--json", str(tmp_path / "out.json")]
    assert main(["size", *words]) == 0
    found = json.loads((tmp_path / "out.json").read_text())["decision"]
    tried = {one["what"]: one["served"] for one in found["confidence"]["tried"]}
    assert (tried["sharing most"], tried["sharing none"]) == (True, False)
    assert "sharing none" in capsys.readouterr().out


def test_points_are_kept_and_not_replayed_again(tmp_path: Path, monkeypatch: Patch) -> None:
    purchases.workload(tmp_path / "trace.jsonl", random.Random(3))
    points, out = tmp_path / "points.jsonl", tmp_path / "out.json"
    words = ["size", str(tmp_path / "trace.jsonl"), "--slo", "ttft=1s", "--limit", "60", *FEW]
    words += ["--hardware", "h100,h200", "--speed", "0.3"]
    words += ["--points", str(points), "--json", str(out)]
    found = []
    for _ in range(2):
        assert main(words) == 0
        found.append(json.loads(out.read_text()))
        monkeypatch.setattr(work.PointWork, "__call__", None)
    assert found[0]["decision"] == found[1]["decision"]
    assert found[0]["variants"] == found[1]["variants"]
    kept = [json.loads(line) for line in points.read_text().splitlines()]
    assert any("stopped" in one for one in kept)
    whole = [one["label"] for one in kept if "whole" in one]
    assert len(read_report(str(points))["variants"]) == len(whole)


def test_a_decision_of_nothing_is_a_decision(tmp_path: Path) -> None:
    options, asked = purchases.drawn(0, tmp_path)
    found: Decision = module.decision(
        purchases.asked_of(str(options.trace), "ttft=1ms")[0], asked, purchases.HOW, ""
    )
    assert found.answer is None
    assert not found.sure.flips
