"""docs/json.md is what the types say, docs/models.md what the command prints, and documents are
their records."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from traces.cli import main
from traces.commands.compare import Comparison
from traces.commands.models import totals
from traces.curves import CurveFigures
from traces.html import Report
from traces.pages import PAGE, total
from traces.results.record import Request, Result, document, record_of

from .rig import Capsys, mooncake, turns_of, write
from .rig import document as written


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents")
    turns_of(path, "--clients", "4", "--rounds", "4")
    write(path / "blocks.jsonl", *(mooncake([n % 3], timestamp=300 * n) for n in range(12)))
    return path


def same(kind: type, result: Any) -> None:
    """A record has all that is in the document, and the document all that the record has."""
    again = json.loads(json.dumps(document(record_of(kind, result))))
    head = ("schema", "kind", "hicache_version", "command", "complete", "warnings")
    assert again == {
        name: item for name, item in result.items() if name in again or name not in head
    }


def test_the_page_has_what_the_types_say() -> None:
    assert total() == PAGE.read_text(), "run python -m traces.pages"
    assert "### Share\n\nSums over some requests that were served" in PAGE.read_text()


def test_a_document_of_a_replay_is_its_record(folder: Path) -> None:
    turns, rows = (str(folder / "turns.jsonl"), folder / "rows.jsonl")
    small = ["--device-pages", "34", "--host-pages", "40", "--prefetch", "wait_complete:0"]
    hybrid = ["--components", "full,swa,mamba=40", "--device-pages", "60"]
    limits = ["--slo", "ttft=20ms,tpot=1ms,itl=1ms,e2e=1s"]
    moved = ["--replicas", "1:1"]
    result: dict[str, set[str]] = {"documents": set(), "rows": set()}
    for words in (
        [str(folder / "blocks.jsonl"), "--speed", "9000", *limits],
        [turns, *hybrid, "--pp", "2"],
        [turns, "--mode", "hits", "--host-pages", "99", "--check", "off"],
        [turns, "--storage", "sim:loss=0.3", *small, "--check", "off"],
        [turns, *moved],
    ):
        item = written(folder, "replay", *words, "--requests", str(rows))
        same(Result, item)
        result["documents"] |= item.keys()
        for line in map(json.loads, rows.read_text().splitlines()):
            same(Request, line)
            result["rows"] |= line.keys()
    never = (
        {*Result.__struct_fields__} - result["documents"],
        {*fields_of(Request)} - result["rows"],
    )
    assert never == ({"measured", "label", "ttft_quantiles_s"}, set())


def test_a_document_has_what_its_log_measured_and_the_options_that_repeat_it(
    folder: Path, capsys: Capsys
) -> None:
    log = folder / "log.csv"
    rows = ["0,100,5,0,0.5", "1,300,5,100,0.2", "2,500,5,300,0.3"]
    log.write_text("\n".join(["time,input,output,cached,first", *rows]))
    columns = "time=time:s,input=input,output=output,cached=cached,ttft=first:s"
    result = written(folder, "replay", str(log), "--columns", columns, "--check", "off")
    assert result["measured"] == {"cached_tokens": 400, "ttft_p50_s": 0.3}
    assert result["options"] == {"columns": columns, "check": "off"}
    same(Result, result)
    out = capsys.readouterr().out
    assert re.search(r"^measured in the log +400 +44\.444 % *$", out, re.MULTILINE)
    assert re.search(r"^TTFT measured in the log \(s\) +0\.300 *$", out, re.MULTILINE)
    repeat = folder / "repeat.json"
    repeat.write_text(json.dumps(result))
    again = written(folder, "replay", str(log), "--config", str(repeat))
    assert (again["digest"], again["latency_s"]) == (result["digest"], result["latency_s"])


def fields_of(kind: Any) -> list[str]:
    return list(kind.__struct_fields__)


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


MODELS = Path(__file__).parents[2] / "docs/models.md"


def shown(capsys: Capsys, *arguments: str) -> str:
    assert main(["models", *arguments]) == 0
    return capsys.readouterr().out


def test_the_page_of_models_has_what_the_command_prints(capsys: Capsys) -> None:
    text = MODELS.read_text()
    for name in models.names():
        model = models.get(name)
        assert f"| {' | '.join(totals(model, 1))} |" in text
        lines = shown(capsys, name).splitlines()
        assert f"{model.bytes_per_token():,}" in " ".join(lines)
        for pool in model.pools:
            assert any(line.split()[:1] == [pool.name] for line in lines)
    listed = {line.split(" ")[0] for line in shown(capsys).splitlines()}
    assert {*models.names()} <= listed
