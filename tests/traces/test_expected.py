"""Which error is expected of a run: the table of judged runs, the nearest of them, the words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from traces.cli import main
from traces.expected import table
from traces.expected.table import Asked, Expected, Judged, expected_error
from traces.expected.words import document, row, rows, together

RUN = Asked("roofline", "h100", "vllm", "llama-3.1-70b", 4, "fp8", "9 to 64")


def judged(error: float, **other: Any) -> Judged:
    found = Judged("roofline", "h100", "llama-3.1-70b", 4, "fp8", 32.0, "tpot", error, "vllm")
    return replace(found, **other)


def several(count: int, error: float, **other: Any) -> list[Judged]:
    return [judged(error, **other) for _ in range(count)]


def asked(found: list[Judged], run: Asked = RUN, **other: Any) -> Expected:
    groups = table.parse(table.summary(found), "table")
    return expected_error(replace(run, **other), groups, groups)


def test_nine_tenths_are_of_all_ranks_and_weights_of_a_load() -> None:
    """A group of three has no tenth. Runs of another load, or near saturation, have their own."""
    rows = [*several(3, 0.1), *several(4, 0.3, ranks=8), *several(4, 0.2, precision="bf16")]
    rows += [*several(6, 0.7, at_once=2.0), *several(6, 0.9, queueing=0.8)]
    found = {one.errors["tpot"] for one in table.parse(table.summary(rows), "table")}
    assert table.Error(3, 0.1, 0.3) in found
    assert {table.Error(6, 0.7, 0.7), table.Error(6, 0.9, 0.9)} <= found
    few = table.parse(table.summary([*several(3, 0.1), *several(9, 0.5, at_once=2.0)]), "table")
    assert table.Error(3, 0.1, 0.5) in {one.errors["tpot"] for one in few}


def test_equal_runs_come_first_and_small_groups_last() -> None:
    found = [*several(2, 0.9), *several(3, 0.2, at_once=100.0)]
    assert asked(found).nearest[0].error.median == 0.2
    assert asked([*found, judged(0.9)]).nearest[0].error.median == 0.9
    assert asked(several(2, 0.9, ranks=1)).nearest[0].differs == ("ranks",)


def test_each_metric_has_its_own_nearest_runs() -> None:
    found = [*several(3, 0.1), *several(4, 0.2, metric="throughput", at_once=500.0)]
    expected = asked(found)
    assert [one.metric for one in expected.nearest] == ["tpot", "throughput"]
    assert [one.differs for one in expected.nearest] == [(), ("load",)]
    assert row(document(expected)) == "TPOT 10 % (nine of ten 10 %), throughput 20 % (20 %)"
    assert list(rows(document(expected))) == [
        ("TPOT", "10 %", "10 %", "3 vllm, 4 x h100, fp8, 9 to 64", ""),
        ("throughput", "20 %", "20 %", "4 vllm, 4 x h100, fp8, 65 or more", "load"),
    ]


@pytest.mark.parametrize(
    ("other", "missing", "said"),
    [
        ({"hardware": "l40s"}, "hardware", "no published run on l40s"),
        ({"times": "mine"}, "times", "times of mine were never compared"),
        ({"stages": 2}, "stages", "no published run had pipeline stages"),
        ({"engine": "mine"}, "engine", "no published run had the engine mine"),
        ({"engine": "plain"}, "engine", "no published run had the engine plain"),
    ],
)
def test_what_was_never_judged_is_not_validated(
    other: dict[str, Any], missing: str, said: str
) -> None:
    expected = asked(several(5, 0.1), **other)
    found = document(expected)
    assert (found["validated"], found["missing"]) == (False, missing)
    assert found["tpot"]["runs"] == 0
    assert row(found) == f"not validated: {said}"
    valid = document(asked(several(5, 0.1)))
    assert together([valid, None, valid]) == [f"Expected error: {row(valid)}"]
    both = ["Expected error, in the median: TPOT 10 %", f"Expected error: {row(found)}"]
    assert together([valid, found]) == both


def test_runs_of_the_same_engine_count_where_there_are_enough() -> None:
    mine = several(3, 0.1, at_once=300.0)
    others = several(9, 0.5, engine="sglang")
    expected = asked([*mine, *others])
    assert expected.nearest[0].error == table.Error(3, 0.1, 0.1)
    assert "engine" not in expected.nearest[0].differs
    few = asked([*mine[:2], *others])
    assert few.nearest[0].error == table.Error(9, 0.5, 0.5)
    assert few.nearest[0].differs == ("engine",)
    assert next(rows(document(few)))[3].startswith("9 all engines, ")
    found = {
        name: asked([*mine, *others], engine=name).nearest[0].error.median
        for name in ("vllm", "sglang", "trtllm")
    }
    assert found == {"vllm": 0.1, "sglang": 0.5, "trtllm": 0.5}


def test_the_shipped_table_can_be_read() -> None:
    known, new = table.shipped(table.KNOWN), table.shipped(table.NEW)
    assert all(group.errors for group in [*known, *new])
    pairs = {(one.engine, one.hardware, name) for one in known for name in one.models}
    assert len(pairs) > 20


def test_a_pair_that_nobody_published_has_the_errors_of_such_pairs() -> None:
    known = table.parse(table.summary(several(3, 0.1)), "known")
    new = table.parse(table.summary(several(3, 0.4)), "new")
    found = [
        expected_error(replace(RUN, **other), known, new)
        for other in ({}, {"model": "qwen3-32b"}, {"engine": "sglang"})
    ]
    assert [one.known for one in found] == [True, False, False]
    assert [one.nearest[0].error.median for one in found] == [0.1, 0.4, 0.4]
    assert document(found[1])["published"] is False
    said = [row(document(one)) for one in found[:2]]
    assert said == ["TPOT 10 % (nine of ten 10 %)", "TPOT 40 % (nine of ten 40 %); unpublished"]


def test_a_report_has_the_errors_of_the_table_of_its_pair(tmp_path: Path) -> None:
    known, new = table.shipped(table.KNOWN), table.shipped(table.NEW)
    for model, published in (("llama-3.1-8b", True), ("tiny", False)):
        out = tmp_path / "out.json"
        words = ["--model", model, "--hardware", "h100", "--limit", "20", "--check", "off"]
        assert main(["replay", *words, "--json", str(out)]) == 0
        found = json.loads(out.read_text())["expected_error"]
        wanted = document(expected_error(Asked(**found["run"]), known, new))
        assert found == json.loads(json.dumps(wanted))
        assert found["published"] == published


WHOLE: dict[str, Any] = json.loads(table.summary(several(3, 0.1)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "other"}, "kind: expected one of expected errors, found"),
        ({"schema": 1}, "schema: expected 3, found 1"),
        ({"engine": 3}, "groups[0].engine: expected a text, found 3"),
        ({"groups": {}}, "groups: expected a list, found {}"),
        ({"groups": [3]}, "groups[0]: expected an object"),
        ({"ranks": 0}, "groups[0].ranks: expected an integer of at least 1, found 0"),
        ({"hardware": None}, "groups[0].hardware: expected a text, found null"),
        ({"load": "some"}, "groups[0].load: expected one of 1, 2 to 8, 9 to 64, 65 or more"),
        ({"models": "x"}, "groups[0].models: expected a list"),
        ({"errors": {}}, "groups[0]: errors: expected some of ttft, tpot, throughput"),
        (
            {"errors": {"tpot": {"runs": 1}}},
            "groups[0].errors.tpot.median: expected a number of at least 0",
        ),
        (
            {"errors": {"tpot": {"runs": 2, "median": -1, "nine_tenths": 1}}},
            "median: expected a number of at least 0 and at most 1e+18, found -1",
        ),
        (
            {"errors": {"tpot": {"runs": 2, "median": 0.5, "nine_tenths": 0.1}}},
            "expected nine_tenths of at least the median 0.5, found 0.1",
        ),
    ],
    ids=str,
)
def test_a_wrong_table_is_named_in_one_line(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    inside = set(change) & set(WHOLE["groups"][0])
    group = WHOLE["groups"][0] | (change if inside else {})
    path = tmp_path / "table.json"
    path.write_text(json.dumps(WHOLE | ({"groups": [group]} if inside else change)))
    with pytest.raises(CallerError) as error:
        table.read(str(path))
    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("{")
    with pytest.raises(CallerError, match="expected JSON"):
        table.read(str(path))
