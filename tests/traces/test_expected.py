"""Which error is expected of a run: the nearest of the judged runs, as a record and as a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from traces import expected
from traces.cli import main
from traces.expected import ALL, Group, Judged, expected_error, row, together
from traces.results.record import ErrorOf, ExpectedError, document

RUN = Judged("roofline", "h100", "vllm", "llama-3.1-70b", 4, "fp8", "9 to 64")


def group(runs: int, error: float, metric: str = "tpot", **other: Any) -> list[Group]:
    """Judged runs of vLLM, and the group of all engines."""
    errors = {metric: ErrorOf(runs, error, error)}
    engine = other.pop("engine", "vllm")
    one = Group("roofline", "h100", 4, "fp8", "9 to 64", engine, False, (RUN.model,), errors)
    return [replace(one, **other), replace(one, engine=ALL, **other)]


def asked(groups: list[Group], **other: Any) -> ExpectedError:
    return expected_error(replace(RUN, **other), groups, groups)


def tpot(groups: list[Group], **other: Any) -> ErrorOf:
    found = asked(groups, **other).tpot
    assert found is not None
    return found


def test_equal_runs_come_first_and_small_groups_last() -> None:
    found = [*group(2, 0.9), *group(3, 0.2, load="65 or more")]
    assert tpot(found).median == 0.2
    assert tpot([*group(3, 0.9), *found[2:]]).median == 0.9
    assert tpot(group(2, 0.9, ranks=1)).differs == ["ranks"]
    busy = [*group(3, 0.2), *group(3, 0.7, saturated=True)]
    assert [tpot(busy, queueing=share).median for share in (0.5, 0.51)] == [0.2, 0.7]


def test_each_metric_has_its_own_nearest_runs() -> None:
    found = asked([*group(3, 0.1), *group(4, 0.2, "throughput", load="65 or more")])
    assert found.ttft is None
    assert [one and one.differs for one in (found.tpot, found.throughput)] == [[], ["load"]]
    assert row(found) == "TPOT 10 % (nine of ten 10 %), throughput 20 % (20 %)"


@pytest.mark.parametrize(
    ("other", "missing"),
    [
        ({"hardware": "l40s"}, "the accelerator l40s"),
        ({"times": "mine"}, "times of mine"),
        ({"stages": 2}, "pipeline stages"),
        ({"engine": "plain"}, "the engine plain"),
    ],
)
def test_what_was_never_judged_is_not_validated(other: dict[str, Any], missing: str) -> None:
    found, valid = asked(group(5, 0.1), **other), asked(group(5, 0.1))
    assert (found.missing, found.tpot) == (missing, None)
    assert row(found) == f"not validated: no published run had {missing}"
    assert together([valid, None, document(valid)]) == [f"Expected error: {row(valid)}"]
    both = ["Expected error: in the median TPOT 10 %", f"Expected error: {row(found)}"]
    assert together([valid, found]) == both


def test_runs_of_the_same_engine_count_where_there_are_enough() -> None:
    mine, others = group(3, 0.1, load="65 or more"), group(9, 0.5, engine="sglang")
    groups = [mine[0], *others]
    found = {name: tpot(groups, engine=name) for name in ("vllm", "sglang", "trtllm")}
    assert {name: one.median for name, one in found.items()} == {
        "vllm": 0.1,
        "sglang": 0.5,
        "trtllm": 0.5,
    }
    assert "engine" not in found["vllm"].differs
    assert tpot([group(2, 0.1)[0], *others]).differs == ["engine"]


def test_a_pair_that_nobody_published_has_the_errors_of_such_pairs() -> None:
    known, new = group(3, 0.1), group(3, 0.4)
    found = [
        expected_error(replace(RUN, **other), known, new)
        for other in ({}, {"model": "qwen3-32b"}, {"engine": "sglang"})
    ]
    assert [one.published for one in found] == [True, False, False]
    assert [one.tpot and one.tpot.median for one in found] == [0.1, 0.4, 0.4]
    said = [row(one) for one in found[:2]]
    assert said == ["TPOT 10 % (nine of ten 10 %)", "TPOT 40 % (nine of ten 40 %); unpublished"]


def test_a_report_has_the_errors_of_the_table_of_its_pair(tmp_path: Path) -> None:
    known, new = map(expected.shipped, (expected.KNOWN, expected.NEW))
    assert all(one.errors for one in [*known, *new])
    assert len({(one.engine, one.hardware, name) for one in known for name in one.models}) > 20
    for model, published in (("llama-3.1-8b", True), ("tiny", False)):
        out = tmp_path / "out.json"
        words = ["--model", model, "--hardware", "h100", "--limit", "20", "--check", "off"]
        assert main(["replay", *words, "--json", str(out)]) == 0
        found = json.loads(out.read_text())
        one, error = found["config"], found["expected_error"]
        load = expected.load(found["load"]["running_mean"])
        queueing = found["load"]["queueing_share"]
        run = Judged(one["times"], "h100", "vllm", model, 1, "bf16", load, queueing)
        assert error == json.loads(json.dumps(document(expected_error(run, known, new))))
        assert error["published"] == published
