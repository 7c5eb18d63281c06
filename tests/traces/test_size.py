"""`hicache size`: what is offered, what a candidate can do at most, and the search for the cheapest
that serves, against replays of every candidate; what it says; what is refused."""

import json
import random
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from traces.curves import lru_curve
from traces.formats import open_trace
from traces.html import read_report
from traces.sizing import search as searching
from traces.sizing.candidates import (
    LITTLE,
    MOST_SIZES,
    NEARLY_ALL,
    Candidate,
    cost_of,
    ladder,
    read_prices,
)
from traces.sizing.search import Search
from traces.sweeping import points as sweeping

from ..bench import purchases
from .rig import Capsys, Patch, document

pytestmark = pytest.mark.usefixtures("here")

GB = 10**9
FEW = ["--tp", "1", "--most-gpus", "2", "--host-bytes", "0,16GB", "--jobs", "1"]
FEW += ["--hardware", "h100,h200", "--speed", "0.15"]


def traffic(seed: int = 3) -> str:
    purchases.workload(Path("trace.jsonl"), random.Random(seed))
    return "trace.jsonl"


def sized(*words: str, code: int = 0, limit: int = 20) -> dict[str, Any]:
    """The document of a run on `traffic`."""
    value = ["size", traffic(), "--model", "llama-3.1-8b", *FEW, "--limit", str(limit), *words]
    return document(Path(), *value, code=code)


@pytest.mark.parametrize("device", [1, 10, 1000])
def test_sizes_of_host_memory_reach_nearly_every_hit(device: int) -> None:
    trace = open_trace(traffic())
    curve, tokens = lru_curve(trace.paged(512)), trace.jobs.input_tokens
    enough = curve.pages_for(NEARLY_ALL * curve.unbounded)
    known = curve.hit_tokens(device)
    for page_bytes in (GB // 100, GB // 4, 3 * GB):
        sizes = ladder(curve, tokens, page_bytes, device)
        assert bool(sizes) == (curve.unbounded - known >= LITTLE * tokens)
        assert len(sizes) <= MOST_SIZES
        assert all(small < large for small, large in pairwise([device * page_bytes, *sizes]))
        assert not sizes or sizes[-1] >= enough * page_bytes


def test_money_by_hand() -> None:
    """Two years are 17,520 hours and four are 35,040."""
    prices = read_prices("gpu=35040,host=3.504/GB,years=2")
    assert prices.per_hour == pytest.approx({"gpu": 2.0, "host": 0.0002})
    assert read_prices("gpu=35040").per_hour == pytest.approx({"gpu": 1.0})
    # 2 x 2 + 512 x 0.0002 an hour
    assert cost_of(Candidate("h100", 2, 1, 512 * GB), prices) == pytest.approx(4 + 0.1024)


# -- the search

Offered = tuple[int, int, int]  # a kind, and two amounts


def searched(seed: int, wrong_by: float, most: int = 1) -> tuple[int | None, int | None, float]:
    """The answer, that of trying all, and the part of the offers that was tried. wrong_by: how far
    the guess is from the truth."""
    draw = random.Random(seed)
    price, speed = ({kind: draw.uniform(0.5, 3) for kind in range(4)} for _ in range(2))
    memory, helps = draw.uniform(0.01, 0.5), draw.uniform(0, 0.4)
    offers: list[Offered] = list(product(range(4), range(1, 9), range(5)))
    offers.sort(key=lambda offer: offer[1] * (price[offer[0]] + memory * offer[2]))
    can_do = [speed[kind] * count * (1 + helps * size) for kind, count, size in offers]
    demand = draw.uniform(0.5, 20)
    serving = {at for at, does in enumerate(can_do) if does >= demand}
    guesses = [does * draw.uniform(1 / wrong_by, wrong_by) for does in can_do]

    def weaker(number: int, other: int) -> bool:
        first, second = offers[number], offers[other]
        return first[0] == second[0] and first[1] <= second[1] and first[2] <= second[2]

    search = Search(len(offers), weaker, guesses.__getitem__, 1.0)
    trials = 0
    while wanted := search.next(most):
        assert len(set(wanted)) == len(wanted) <= most
        trials += len(wanted)
        for item in wanted:
            search.tried(item, item in serving)
    return search.answer, min(serving, default=None), trials / len(offers)


@pytest.mark.parametrize("wrong_by", [1.0, 2.0, 50.0])
@pytest.mark.parametrize("most", [1, 6])
def test_the_search_finds_what_trying_everything_finds(wrong_by: float, most: int) -> None:
    result = [searched(seed, wrong_by, most) for seed in range(60)]
    assert all(answer == true for answer, true, _ in result)
    if (wrong_by, most) == (2.0, 1):
        assert sum(part for *_, part in result) / len(result) < 0.2


def test_the_answer_and_every_reason_are_those_of_trying_everything(tmp_path: Path) -> None:
    fewer = {"hardware": ("a100", "h200"), "tp": (1, 2), "replicas": (1,), "hosts": (0, 16 * GB)}
    result, serving = purchases.tried(5, tmp_path, **fewer)
    rows, answer = result.document["candidates"], result.document["answer"]
    first = next((place for place, serves in enumerate(serving) if serves), None)
    assert (answer and answer["cost_per_hour"]) == (
        None if first is None else rows[first]["cost_per_hour"]
    )
    for row, serves in zip(rows, serving, strict=True):
        if row["served"] is not None:
            assert row["served"] == serves, row["label"]
        elif row["why"] != "costs more":
            assert row["why"].startswith("hits what") or not serves, row
        if row["served"] and row["cost_per_hour"] == answer["cost_per_hour"]:
            assert row["attained_rate"] <= answer["attained_rate"]
    costs = [row["cost_per_hour"] for row in rows]
    assert costs == sorted(costs)


# -- what is said


def test_the_document_says_what_was_bought_and_what_was_not(monkeypatch: Patch) -> None:
    limits = ["--slo", "ttft=2s,tpot=50ms", "--today", "1xh100", "-o", "page.html"]
    document = sized(*limits, "--points", "points.jsonl")
    decision = document["decision"]
    answer, rows = decision["answer"], decision["candidates"]
    assert answer in rows
    assert len(rows) == 2 * 2 * 2  # accelerators, replicas, sizes of host memory
    for row in rows:
        assert row["why"] or row["served"] is not None
        assert row["host_bytes_total"] == row["replicas"] * row["host_bytes"]
        if row["goodput_per_cost"] is not None:
            value = row["goodput_requests_per_s"] * 3600 / row["cost_per_hour"]
            assert row["goodput_per_cost"] == pytest.approx(value)
    assert document["variants"][0]["label"] == answer["label"] == document["verdict"]["best"]
    first, *_ = document["verdict"]["sentences"]
    kept = f"{answer['attained_rate'] * 100:.1f} % of the requests"
    assert f"{answer['label']} for {answer['cost_per_hour']:.2f} USD an hour: {kept}" in first
    assert read_report("page.html")["verdict"] == document["verdict"]
    # what is done is kept, and not replayed again
    assert read_report("points.jsonl")["variants"]
    monkeypatch.setattr(sweeping, "replayed", lambda outside, task: 1 / 0)
    assert sized(*limits, "--points", "points.jsonl")["decision"] == decision


@pytest.mark.parametrize("most", [0, 3])
def test_a_search_that_did_not_end_says_what_it_has_seen(
    most: int, monkeypatch: Patch, capsys: Capsys
) -> None:
    plain, calls = sweeping.replayed, []

    def ends(outside: Any, task: sweeping.Task) -> dict[str, Any]:
        calls.append(task)
        if len(calls) > most:
            raise KeyboardInterrupt
        return plain(outside, task)

    monkeypatch.setattr(sweeping, "replayed", ends)
    sized("--slo", "ttft=2s", code=130)
    message = " ".join(capsys.readouterr().out.split())
    assert message.startswith("The search did not end; ")
    assert ("nothing was seen to serve yet" in message) == (most == 0)


def test_a_part_of_a_long_trace_is_replayed_and_the_whole_is_named() -> None:
    words = ["--slo", "ttft=2s", "--sample", "0.5", "--points", "points.jsonl"]
    document = sized(*words, limit=50)
    result, part = document["decision"], document["decision"]["sample"]
    assert part["part"] == 0.5
    assert 0 < part["requests"] < result["demand"]["requests"] == 50
    assert 0 <= part["hit_rate_error"] < 1
    assert any(item.startswith("replayed: ") for item in document["estimates"])
    kept = [json.loads(line) for line in Path("points.jsonl").read_text().splitlines()[1:]]
    answer = [item for item in kept if item["label"] == result["answer"]["label"]]
    assert [item["trace"]["requests"] for item in answer] == [part["requests"]]


def test_a_long_trace_is_answered_by_all_of_it_and_flips_by_a_part(monkeypatch: Patch) -> None:
    full = sized("--slo", "ttft=2s")["decision"]
    monkeypatch.setattr(searching, "LONG", 18)
    monkeypatch.setattr(searching, "PROBED", 15)
    part = sized("--slo", "ttft=2s")["decision"]
    assert full["confidence"]["part_requests"] is None
    assert 0 < part["confidence"]["part_requests"] < 20
    assert part["answer"] == full["answer"]
    for item, other in zip(*(each["confidence"]["flips"] for each in (full, part)), strict=True):
        assert item["what"] == other["what"]
        assert other["at"] is None or other["at"] > other["holds"] >= 1
