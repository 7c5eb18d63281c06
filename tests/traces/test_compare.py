"""`hicache compare`: what changed, and a cause only where the documents show one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .rig import Capsys, document, fails, random_tree

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replays of one trace: a without host memory, b and c with it, c with another policy, too; d
    with more ranks, from which other settings follow; and a sweep."""
    path = tmp_path_factory.mktemp("compare")
    random_tree(path / "tree.jsonl", 80)
    host = ["--host-pages", "70"]
    small = [str(path / "tree.jsonl"), "--device-pages", "60", "--check", "off"]
    for name, options in (
        ("a", ["--host-pages", "0"]),
        ("b", host),
        ("c", [*host, "--write-policy", "write_back"]),
        ("d", [*host, "--tp", "2", "--eviction", "lru", "--page-size", "64"]),
        ("stored", [*host, "--storage", "sim:", "--prefetch", "wait_complete:0"]),
    ):
        files = ["--json", str(path / f"{name}.json"), "--html", str(path / f"{name}.html")]
        assert main(["replay", *small, *options, *files]) == 0
    grid = ["--host-pages", "0,70", "--jobs", "1", "-o", str(path / "sweep.jsonl")]
    assert main(["sweep", *small, *grid]) == 0
    return path


def compared(folder: Path, capsys: Capsys, *names: str) -> tuple[dict[str, Any], str]:
    """The document of a comparison and what was printed."""
    capsys.readouterr()
    result = document(folder, "compare", *(str(folder / name) for name in names))
    return result, capsys.readouterr().out


def changed(folder: Path, name: str, change: Change) -> str:
    """A copy of a document with a change; its path."""
    result = json.loads((folder / f"{name}.json").read_text())
    change(result)
    path = folder / "changed.json"
    path.write_text(json.dumps(result))
    return str(path)


@pytest.mark.parametrize(
    ("sides", "kind", "name", "values", "text"),
    [
        ("bc", "json", "write-policy", [None, "write_back"], "write-policy: not set to write_back"),
        ("ab", "html", "host-pages", ["0", "70"], "host-pages: 0 to 70"),
        ("bd", "json", "tp", [None, "2"], "tp: not set to 2"),
    ],
)
def test_one_option_is_one_change(
    sides: str, kind: str, name: str, values: list[str], text: str, folder: Path, capsys: Capsys
) -> None:
    """Whatever else follows from it."""
    result, printed = compared(folder, capsys, *(f"{side}.{kind}" for side in sides))
    assert result["settings"] == [{"name": name, "values": values}]
    assert [*result["causes"].values()] == [f"{text}, and nothing else"]
    assert text in " ".join(printed.split())
    both = [json.loads((folder / f"{side}.json").read_text()) for side in sides]
    assert result["figures"]["hit_rate"] == [item["total"]["hit_rate"] for item in both]
    points = (both[1]["total"]["hit_rate"] - both[0]["total"]["hit_rate"]) * 100
    assert f"{points:+.1f} points" in printed or not points


def test_points_of_a_sweep_differ_in_what_varies_and_several_options_are_no_cause(
    folder: Path, capsys: Capsys
) -> None:
    result, _ = compared(folder, capsys, "sweep.jsonl")
    assert [item["label"] for item in result["sides"]] == ["host-pages=0", "host-pages=70"]
    assert [*result["causes"].values()] == ["host-pages: 0 to 70, and nothing else"]
    several, _ = compared(folder, capsys, "a.json", "c.json", "a.json")
    assert [*several["causes"].values()] == [
        "not known: 2 settings differ (host-pages, write-policy); change one at a time",
        "nothing changed: the same decisions at the same times",
    ]


def test_parts_of_the_change_add_up(folder: Path, capsys: Capsys) -> None:
    result = compared(folder, capsys, "a.html", "stored.html")[0]
    figures = result["figures"]

    def change(name: str) -> float:
        return float(figures[name][1] - figures[name][0])

    parts = sum(change(f"{tier}_rate") for tier in ("device", "host", "storage"))
    assert change("hit_rate") == pytest.approx(parts)
    assert change("hit_rate") == pytest.approx(-change("lost_rate"))
    parts = sum(change(f"{part}_mean_s") for part in ("queue", "load", "compute"))
    assert change("ttft_mean_s") == pytest.approx(parts)
    assert figures["storage_rate"][1] > 0
    assert set(result["lost_by_reason"]) >= {"evicted"}
    lost = zip(*result["lost_by_reason"].values(), strict=True)
    assert [sum(rates) for rates in lost] == pytest.approx(figures["lost_rate"])


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("c", lambda d: d.update(hicache_version="0.0.0"), "were made by versions"),
        ("c", lambda d: d["trace"].update(path="other.jsonl"), "name different files"),
        ("b", lambda d: d["total"].update(input_tokens=5), "served different requests"),
        ("c", lambda d: d["config"].update(mode=["hits"]), "have different modes"),
    ],
)
def test_what_weakens_a_comparison_is_said_and_no_cause_is(
    folder: Path, capsys: Capsys, name: str, change: Change, text: str
) -> None:
    assert main(["compare", str(folder / "b.json"), changed(folder, name, change)]) == 0
    out, err = capsys.readouterr()
    assert text in err
    assert "nothing else" not in out
    assert "not known: more than settings differs" in " ".join(out.split())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d["trace"].update(requests=9), "(80 requests), found 9; compare replays of one"),
        (lambda d: d.update(interrupted=True), "which was interrupted"),
        (lambda d: d.update(schema=7), "expected schema 2, found 7"),
        (lambda d: d.pop("digest"), "object missing required field `digest`; make it again with"),
        (lambda d: d.pop("total"), "expected a document of hicache replay"),
    ],
)
def test_documents_that_cannot_be_compared_are_one_line(
    folder: Path, capsys: Capsys, change: Change, text: str
) -> None:
    item = str(folder / "b.json")
    assert text in fails(capsys, "compare", item, changed(folder, "c", change))
    assert "expected 2 to 64 replays, found 1" in fails(capsys, "compare", item)
    assert "which it would replace" in fails(capsys, "compare", item, item, "--json", item)
