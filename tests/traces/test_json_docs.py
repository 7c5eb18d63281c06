"""docs/json.md describes every key of every document, and no key that no document has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main
from traces.commands.compare import Comparison
from traces.curves import CurveFigures
from traces.html import Report
from traces.pages import PAGE, whole
from traces.results.record import Request, Result, document, record_of

from .rig import Capsys, mooncake, write

Key = tuple[str, ...]


def spelled(text: str) -> Iterator[str]:
    """Every key that `text` stands for: `{a,b}` is either."""
    parts = re.split(r"(\{[^}]*\})", text)
    choices = [part[1:-1].split(",") if part.startswith("{") else [part] for part in parts]
    for chosen in product(*choices):
        yield "".join(chosen)


def keys_of(title: str) -> list[Key]:
    """The keys of the list under this heading."""
    found: list[Key] = []
    [_, text] = re.split(rf"\n##+ {re.escape(title)}\n", PAGE.read_text())
    own = re.split(r"\n##+ |<!--", text)[0]
    for row in re.findall(r"^- ((?:`[^`]+`(?:, )?)+)(?::|$)", own, re.MULTILINE):
        names = [one for key in re.findall(r"`([^`]+)`", row) for one in spelled(key)]
        found += [tuple(one.replace("[]", ".[]").split(".")) for one in names]
    assert found, title
    return found


def described(section: str) -> set[Key]:
    found = keys_of(section)
    twice = {key for key in found if found.count(key) > 1}
    assert not twice, f"{section}: a key is described twice: {twice}"
    return set(found)


def leaves(value: object, at: Key = ()) -> Iterator[tuple[Key, bool]]:
    """The path of every value without a value in it, and whether it is an empty object or list."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, (*at, name))
    elif isinstance(value, list) and value:
        for inner in value:
            yield from leaves(inner, (*at, "[]"))
    else:
        yield at, value in ({}, [])


def fits(key: Key, pattern: Key) -> bool:
    return len(key) == len(pattern) and all(
        want in ("NAME", name) for name, want in zip(key, pattern, strict=True)
    )


def compare(section: str, documents: list[dict[str, Any]]) -> None:
    patterns = described(section)
    used: set[Key] = set()
    for one in documents:
        for key, empty in set(leaves(one)):
            found = [pattern for pattern in patterns if fits(key, pattern)]
            # a key that is spelled out is meant rather than NAME
            found.sort(key=lambda pattern: pattern.count("NAME"))
            inside = [pattern for pattern in patterns if fits(key, pattern[: len(key)])]
            used.update(inside if empty else found[:1])
            # a record of its own is named as a whole
            above = [pattern for pattern in patterns if fits(key[: len(pattern)], pattern)]
            used.update(above)
            assert inside or above, f"docs/json.md, {section}: {'.'.join(key)} is not described"
    unseen = sorted(".".join(key) for key in patterns - used)
    assert not unseen, f"docs/json.md, {section}: no document has {unseen}"


def test_a_key_that_is_not_described_and_one_that_never_appears_are_found() -> None:
    with pytest.raises(AssertionError, match="no document has"):
        compare("hicache inspect", [{"schema": 1}])
    with pytest.raises(AssertionError, match="surprise is not described"):
        compare("hicache inspect", [{"surprise": 1}])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents")
    turns = ["generate", "multiturn", "--clients", "4", "--rounds", "4"]
    assert main([*turns, "-o", str(path / "turns.jsonl")]) == 0
    write(path / "blocks.jsonl", *(mooncake([n % 3], timestamp=300 * n) for n in range(12)))
    return path


def written(folder: Path, *command: str, code: int = 0) -> dict[str, Any]:
    out = folder / "out.json"
    assert main([*command, "--json", str(out)]) == code
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def same(kind: type, found: Any) -> None:
    """A record has all that is in the document, and the document all that the record has."""
    again = json.loads(json.dumps(document(record_of(kind, found))))
    head = ("schema", "kind", "hicache_version", "command", "complete", "warnings")
    assert again == {name: one for name, one in found.items() if name in again or name not in head}


def test_the_page_has_what_the_types_say() -> None:
    assert whole() == PAGE.read_text(), "run python -m traces.pages"
    assert "### Share\n\nSums over some requests that were served" in PAGE.read_text()


def test_a_document_of_a_replay_is_its_record(folder: Path) -> None:
    turns, rows = (str(folder / "turns.jsonl"), folder / "rows.jsonl")
    small = ["--device-pages", "34", "--host-pages", "40", "--prefetch-threshold", "0"]
    hybrid = ["--components", "full,swa,mamba", "--mamba-states", "40", "--device-pages", "60"]
    limits = ["--slo", "ttft=20ms,tpot=1ms,itl=1ms,e2e=1s"]
    moved = ["--prefill-replicas", "1", "--decode-replicas", "1"]
    found: dict[str, set[str]] = {"documents": set(), "rows": set()}
    for words in (
        [str(folder / "blocks.jsonl"), "--speed", "9000", *limits],
        [turns, *hybrid, "--pp", "2"],
        [turns, "--mode", "hits", "--host-pages", "99", "--check", "off"],
        [turns, "--storage", "sim:loss=0.3", *small, "--check", "off"],
        [turns, *moved],
    ):
        one = written(folder, "replay", *words, "--requests", str(rows))
        same(Result, one)
        found["documents"] |= one.keys()
        for line in map(json.loads, rows.read_text().splitlines()):
            same(Request, line)
            found["rows"] |= line.keys()
    never = {*Result.__struct_fields__} - found["documents"], {*fields_of(Request)} - found["rows"]
    assert never == ({"measured", "label", "ttft_quantiles_s"}, set())


def test_a_document_has_what_its_log_measured_and_the_options_that_repeat_it(
    folder: Path, capsys: Capsys
) -> None:
    log = folder / "log.csv"
    rows = ["0,100,5,0,0.5", "1,300,5,100,0.2", "2,500,5,300,0.3"]
    log.write_text("\n".join(["time,input,output,cached,first", *rows]))
    columns = "time=time:s,input=input,output=output,cached=cached,ttft=first:s"
    found = written(folder, "replay", str(log), "--columns", columns, "--check", "off")
    assert found["measured"] == {"cached_tokens": 400, "ttft_p50_s": 0.3}
    assert found["options"] == {"columns": columns, "check": "off"}
    same(Result, found)
    told = capsys.readouterr().out
    assert re.search(r"^measured in the log +400 +44\.444 % *$", told, re.MULTILINE)
    assert re.search(r"^TTFT measured in the log \(s\) +0\.300 *$", told, re.MULTILINE)
    repeat = folder / "repeat.json"
    repeat.write_text(json.dumps(found))
    again = written(folder, "replay", str(log), "--config", str(repeat))
    assert (again["digest"], again["latency_s"]) == (found["digest"], found["latency_s"])


def fields_of(kind: Any) -> list[str]:
    return list(kind.__struct_fields__)


def test_inspect(folder: Path) -> None:
    turns = str(folder / "turns.jsonl")
    fast = [mooncake([n % 3], timestamp=0.1 * n) for n in range(20)]
    strange = str(write(folder / "fast.jsonl", *fast))
    compare("hicache inspect", [written(folder, "inspect", name) for name in (turns, strange)])


def test_reports_and_comparisons_are_their_records(folder: Path) -> None:
    turns = str(folder / "turns.jsonl")
    small = ["--device-pages", "34", "--check", "off"]
    sides = []
    for name, options in (("a", []), ("b", ["--storage", "sim:"]), ("c", ["--mode", "hits"])):
        page = str(folder / f"{name}.html")
        assert main(["replay", turns, *small, *options, "--html", page]) == 0
        sides.append(page)
        same(Report, written(folder, "report", page))
    for other in sides[1:]:
        same(Comparison, written(folder, "compare", sides[0], other))
    curve = written(folder, "curve", turns, "--model", "tiny")
    same(CurveFigures, curve)


def test_sweep(folder: Path) -> None:
    turns, file = str(folder / "turns.jsonl"), str(folder / "sweep.jsonl")
    small = ["--device-pages", "60", "--check", "off", "--jobs", "1"]
    grid = ["--host-ratio", "0,1", "--write-policy", "all", "-o", file]
    limits = ["--slo", "ttft=1s,tpot=50ms"]
    busy = [str(folder / "blocks.jsonl"), "--speed", "9000", "--jobs", "1"]
    documents = [
        written(folder, "sweep", turns, *small, *limits, *grid),
        written(folder, "sweep", turns, *small, "--mode", "hits"),
        written(folder, "sweep", *busy),
    ]
    compare("hicache sweep", documents)
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    assert {key for line in lines for key in line} >= {
        "decisions",
        "key",
        "ttft_quantiles_s",
        "load",
    }
