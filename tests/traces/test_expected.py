"""Which error is expected of a run: the nearest of the judged runs, as a record and as a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from traces.cli import main
from traces.expected import table
from traces.expected.table import ALL, Group, expected_error, row, rows, together
from traces.results.record import ErrorOf, ExpectedError, Judged, document

RUN = Judged("roofline", "h100", "vllm", "llama-3.1-70b", 4, "fp8", "9 to 64")


def group(runs: int, error: float, metric: str = "tpot", **other: Any) -> list[Group]:
    """Judged runs of vLLM, and the group of all engines."""
    errors = {metric: ErrorOf(runs, error, error)}
    engine = other.pop("engine", "vllm")
    one = Group("roofline", "h100", 4, "fp8", "9 to 64", engine, False, (RUN.model,), errors)
    return [replace(one, **other), replace(one, engine=ALL, **other)]


def asked(groups: list[Group], **other: Any) -> ExpectedError:
    return expected_error(replace(RUN, **other), groups, groups)


def test_equal_runs_come_first_and_small_groups_last() -> None:
    found = [*group(2, 0.9), *group(3, 0.2, load="65 or more")]
    assert asked(found).tpot.median == 0.2
    assert asked([*group(3, 0.9), *found[2:]]).tpot.median == 0.9
    assert asked(group(2, 0.9, ranks=1)).tpot.differs == ["ranks"]
    busy = [*group(3, 0.2), *group(3, 0.7, saturated=True)]
    assert [asked(busy, queueing=share).tpot.median for share in (0.5, 0.51)] == [0.2, 0.7]


def test_each_metric_has_its_own_nearest_runs() -> None:
    found = asked([*group(3, 0.1), *group(4, 0.2, "throughput", load="65 or more")])
    assert (found.ttft, found.tpot.differs, found.throughput.differs) == (ErrorOf(), [], ["load"])
    assert row(found) == "TPOT 10 % (nine of ten 10 %), throughput 20 % (20 %)"
    assert list(rows(found)) == [
        ("TPOT", "10 %", "10 %", "3 vllm, 4 x h100, fp8, 9 to 64", ""),
        ("throughput", "20 %", "20 %", "4 vllm, 4 x h100, fp8, 65 or more", "load"),
    ]


@pytest.mark.parametrize(
    ("other", "missing", "said"),
    [
        ({"hardware": "l40s"}, "hardware", "no published run on l40s"),
        ({"times": "mine"}, "times", "times of mine were never compared"),
        ({"stages": 2}, "stages", "no published run had pipeline stages"),
        ({"engine": "plain"}, "engine", "no published run had the engine plain"),
    ],
)
def test_what_was_never_judged_is_not_validated(
    other: dict[str, Any], missing: str, said: str
) -> None:
    found, valid = asked(group(5, 0.1), **other), asked(group(5, 0.1))
    assert (found.validated, found.missing, found.tpot.runs) == (False, missing, 0)
    assert row(found) == f"not validated: {said}"
    assert together([valid, None, document(valid)]) == [f"Expected error: {row(valid)}"]
    both = ["Expected error, in the median: TPOT 10 %", f"Expected error: {row(found)}"]
    assert together([valid, found]) == both


def test_runs_of_the_same_engine_count_where_there_are_enough() -> None:
    mine, others = group(3, 0.1, load="65 or more"), group(9, 0.5, engine="sglang")
    groups = [mine[0], *others]
    found = {name: asked(groups, engine=name).tpot for name in ("vllm", "sglang", "trtllm")}
    assert {name: one.median for name, one in found.items()} == {
        "vllm": 0.1,
        "sglang": 0.5,
        "trtllm": 0.5,
    }
    assert "engine" not in found["vllm"].differs
    few = asked([group(2, 0.1)[0], *others])
    assert few.tpot.differs == ["engine"]
    assert next(rows(few))[3].startswith("9 all engines, ")


def test_a_pair_that_nobody_published_has_the_errors_of_such_pairs() -> None:
    known, new = group(3, 0.1), group(3, 0.4)
    found = [
        expected_error(replace(RUN, **other), known, new)
        for other in ({}, {"model": "qwen3-32b"}, {"engine": "sglang"})
    ]
    assert [one.published for one in found] == [True, False, False]
    assert [one.tpot.median for one in found] == [0.1, 0.4, 0.4]
    said = [row(one) for one in found[:2]]
    assert said == ["TPOT 10 % (nine of ten 10 %)", "TPOT 40 % (nine of ten 40 %); unpublished"]


def test_a_report_has_the_errors_of_the_table_of_its_pair(tmp_path: Path) -> None:
    known, new = table.shipped(table.KNOWN), table.shipped(table.NEW)
    assert all(one.errors for one in [*known, *new])
    assert len({(one.engine, one.hardware, name) for one in known for name in one.models}) > 20
    for model, published in (("llama-3.1-8b", True), ("tiny", False)):
        out = tmp_path / "out.json"
        words = ["--model", model, "--hardware", "h100", "--limit", "20", "--check", "off"]
        assert main(["replay", *words, "--json", str(out)]) == 0
        found = json.loads(out.read_text())["expected_error"]
        wanted = document(expected_error(convert(found["run"], Judged), known, new))
        assert found == json.loads(json.dumps(wanted))
        assert found["published"] == published
