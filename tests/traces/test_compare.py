"""`hicache compare`: what changed, and a cause only where the documents show one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .rig import Capsys

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replays of one trace: a without host memory, b and c with it, c with another policy, too; d
    with more ranks, from which other settings follow."""
    path = tmp_path_factory.mktemp("compare")
    tree = ["generate", "random-tree", "--requests", "80", "-o", str(path / "tree.jsonl")]
    assert main(tree) == 0
    host = ["--host-pages", "70"]
    for name, options in (
        ("a", ["--host-pages", "0"]),
        ("b", host),
        ("c", [*host, "--write-policy", "write_back"]),
        ("d", [*host, "--tp", "2"]),
        ("stored", [*host, "--storage", "sim:", "--prefetch-threshold", "0"]),
    ):
        files = ["--json", str(path / f"{name}.json"), "--requests", str(path / f"{name}.jsonl")]
        small = ["--device-pages", "60", "--check", "off", "--html", str(path / f"{name}.html")]
        assert main(["replay", str(path / "tree.jsonl"), *small, *options, *files]) == 0
    return path


@pytest.fixture
def compared(
    folder: Path, tmp_path: Path, capsys: Capsys
) -> Callable[..., tuple[dict[str, Any], str]]:
    def run(*names: str, requests: bool = False) -> tuple[dict[str, Any], str]:
        """The document and what was printed."""
        out = tmp_path / "out.json"
        files = [str(folder / name) for name in names]
        more = ["--requests", *(str(Path(name).with_suffix(".jsonl")) for name in files[:2])]
        capsys.readouterr()
        assert main(["compare", *files, *more * requests, "--json", str(out)]) == 0
        found: dict[str, Any] = json.loads(out.read_text())
        return found, capsys.readouterr().out

    return run


def changed(folder: Path, name: str, change: Change) -> str:
    """A copy of a document with a change; its path."""
    document = json.loads((folder / f"{name}.json").read_text())
    change(document)
    path = folder / "changed.json"
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    ("sides", "name", "values", "said"),
    [
        ("bc", "write-policy", [None, "write_back"], "write-policy: not set to write_back"),
        ("ab", "host-pages", ["0", "70"], "host-pages: 0 to 70"),
        ("bd", "tp", [None, "2"], "tp: not set to 2"),
    ],
)
def test_one_option_is_one_change(
    sides: str, name: str, values: list[str], said: str, folder: Path, compared: Any
) -> None:
    """Whatever else follows from it."""
    found, printed = compared(*(f"{side}.json" for side in sides))
    first, *others = found["settings"]
    assert first == {"name": name, "values": values, "counts": True}
    assert not any(one["counts"] for one in others)
    assert [*found["causes"].values()] == [f"{said}, and nothing else"]
    assert said in " ".join(printed.split())
    both = [json.loads((folder / f"{side}.json").read_text()) for side in sides]
    assert found["figures"]["hit_rate"] == [one["whole"]["hit_rate"] for one in both]
    points = (both[1]["whole"]["hit_rate"] - both[0]["whole"]["hit_rate"]) * 100
    assert f"{points:+.1f} points" in printed or not points


def test_reports_have_settings_and_no_command_line(compared: Any) -> None:
    found, _ = compared("b.html", "c.html")
    assert [one["name"] for one in found["settings"]] == ["write_policy"]
    assert [*found["causes"].values()] == [
        "write_policy: write_through to write_back, and nothing else"
    ]
    several = compared("a.html", "c.html")[0]["causes"]
    assert next(iter(several.values())).startswith("not known: ")
    same = compared("a.json", "a.json")[0]["causes"]
    assert [*same.values()] == ["nothing changed: the same decisions at the same times"]


def test_parts_of_the_change_add_up(compared: Any) -> None:
    figures = compared("a.json", "b.json")[0]["figures"]

    def change(name: str) -> float:
        return float(figures[name][1] - figures[name][0])

    parts = sum(change(f"{tier}_rate") for tier in ("device", "host"))
    assert change("hit_rate") == pytest.approx(parts)
    assert change("hit_rate") == pytest.approx(-change("lost_rate"))
    parts = sum(change(f"{part}_mean_s") for part in ("queue", "load", "compute"))
    assert change("ttft_mean_s") == pytest.approx(parts)


def test_reports_have_reasons(compared: Any) -> None:
    found, _ = compared("b.html", "stored.html")
    assert set(found["lost_by_reason"]) >= {"evicted"}
    lost = zip(*found["lost_by_reason"].values(), strict=True)
    assert [sum(rates) for rates in lost] == pytest.approx(found["figures"]["lost_rate"])
    assert found["figures"]["storage_rate"][1] > 0


def test_requests_that_changed_most(folder: Path, compared: Any) -> None:
    found, printed = compared("a.json", "b.json", requests=True)
    lines = [(folder / f"{name}.jsonl").read_text().splitlines() for name in "ab"]
    rows = [{row["request"]: row for row in map(json.loads, one)} for one in lines]
    hits = [{n: sum(row["hit_tokens"].values()) for n, row in one.items()} for one in rows]
    told = found["requests"]
    assert told["requests"] == len(rows[0]) == 80
    assert told["more"] == sum(hits[1][n] > hits[0][n] for n in hits[0])
    assert told["fewer"] == sum(hits[1][n] < hits[0][n] for n in hits[0])
    assert f"({told['more']:,} hit more, {told['fewer']:,} hit less)" in " ".join(printed.split())
    moved = sorted(abs(rows[1][n]["ttft_ns"] - rows[0][n]["ttft_ns"]) / 1e9 for n in rows[0])
    found_moves = [abs(one["ttft_s"][1] - one["ttft_s"][0]) for one in told["most"]]
    assert found_moves == pytest.approx(moved[::-1][: len(found_moves)])
    assert all(one["requests"] for one in told["ended"])


def test_sweep_documents(folder: Path, compared: Any) -> None:
    points = [json.loads((folder / f"{name}.json").read_text()) for name in "ab"]
    header = {"schema": 1, "kind": "sweep", "hicache_version": "0", "trace": points[0]["trace"]}
    lines = [header, *(point | {"label": f"point {at}"} for at, point in enumerate(points))]
    (folder / "sweep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found, _ = compared("sweep.jsonl")
    assert [one["label"] for one in found["sides"]] == ["point 0", "point 1"]


def test_a_comparison_as_html_has_no_script(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    both = [str(folder / "a.json"), str(folder / "b.json")]
    assert main(["compare", *both, "--html", str(out)]) == 0
    text = out.read_text()
    assert text.count("<script") == 1  # the document, which no browser runs
    assert "script-src &#39;none&#39;" in text
    assert "Cause: " in text
    assert len(text) < 50_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(hicache_version="0.0.0"), "were made by versions"),
        (lambda d: d["trace"].update(path="other.jsonl"), "name different files"),
        (lambda d: d["whole"].update(input_tokens=5), "served different requests"),
        (lambda d: d["config"].update(mode=["hits"]), "have different modes"),
    ],
)
def test_what_weakens_a_comparison_is_said_and_no_cause_is(
    folder: Path, capsys: Capsys, change: Change, said: str
) -> None:
    assert main(["compare", str(folder / "b.json"), changed(folder, "c", change)]) == 0
    out, err = capsys.readouterr()
    assert said in err
    assert "nothing else" not in out
    assert "not known: more than settings differs" in " ".join(out.split())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["trace"].update(requests=9), "(80 requests), found 9; compare replays of one"),
        (lambda d: d.update(complete=False), "which was interrupted"),
        (lambda d: d.update(schema=7), "expected schema 1, found 7"),
        (lambda d: d["whole"].update(hit_rate="x"), "whole.hit_rate: expected `float`, got `str`"),
        (lambda d: d["whole"].update(hit_rate=1e19), "whole.hit_rate: expected `float` <= "),
        (lambda d: d.pop("digest"), "object missing required field `digest`; make it again with"),
        (lambda d: d.pop("whole"), "found an object with"),
    ],
)
def test_documents_that_cannot_be_compared_are_one_line(
    folder: Path, capsys: Capsys, change: Change, said: str
) -> None:
    assert main(["compare", str(folder / "b.json"), changed(folder, "c", change)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert said in err
    assert err.count("\n") == 1


def test_wrong_files_are_one_line(folder: Path, capsys: Capsys) -> None:
    a, b = str(folder / "a.json"), str(folder / "b.json")
    rows = [str(folder / f"{name}.jsonl") for name in "ab"]
    broken = folder / "broken.jsonl"
    broken.write_text('{"request": 1}\n')
    for given, said in (
        ([a], "expected two replays, found 1"),
        ([a, str(folder / "tree.jsonl")], "document of hicache replay"),
        ([a, b, "--requests", *rows[::-1]], "name the files in the order of the documents"),
        ([a, b, "--requests", rows[0], str(broken)], "broken.jsonl:1: object missing required"),
        ([a, b, "--requests", rows[0], a], "expected one JSON object a line"),
        ([a, b, "--json", a], "which it would replace"),
        ([a, b, b, "--requests", *rows], "--requests: expected two replays, found 3"),
        ([a, b, "--json", "-", "--html", "-"], "since --json has stdout"),
    ):
        assert main(["compare", *given]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert said in err
        assert err.count("\n") == 1
