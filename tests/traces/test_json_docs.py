"""docs/json.md describes every key of every document, and no key that no document has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hicache.storage import keys
from tests.planted import planted
from traces.cli import main
from traces.html.document import checked

from . import test_store as test_store_command
from .rig import BUG, Capsys, Patch, mooncake, write

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
Key = tuple[str, ...]


def spelled(text: str) -> Iterator[str]:
    """Every key that `text` stands for: `{a,b}` is either."""
    parts = re.split(r"(\{[^}]*\})", text)
    choices = [part[1:-1].split(",") if part.startswith("{") else [part] for part in parts]
    for chosen in product(*choices):
        yield "".join(chosen)


def keys_of(title: str) -> list[Key]:
    """The keys of the list under this heading; a word in capitals is the list of that name."""
    found: list[Key] = []
    [_, text] = re.split(rf"\n##+ {re.escape(title)}\n", PAGE.read_text())
    own = re.split(r"\n##+ ", text)[0]
    for row in re.findall(r"^- ((?:`[^`]+`(?:, )?)+)(?::|$)", own, re.MULTILINE):
        for one in [one for key in re.findall(r"`([^`]+)`", row) for one in spelled(key)]:
            *above, last = one.replace("[]", ".[]").split(".")
            shared = last.isupper() and last != "NAME"
            found += [(*above, *key) for key in (keys_of(last) if shared else [(last,)])]
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
    for document in documents:
        for key, empty in set(leaves(document)):
            found = [pattern for pattern in patterns if fits(key, pattern)]
            # a key that is spelled out is meant rather than NAME
            found.sort(key=lambda pattern: pattern.count("NAME"))
            inside = [pattern for pattern in patterns if fits(key, pattern[: len(key)])]
            used.update(inside if empty else found[:1])
            assert inside, f"docs/json.md, {section}: {'.'.join(key)} is not described"
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


def test_replay(folder: Path, monkeypatch: Patch) -> None:
    turns, rows, more = (str(folder / "turns.jsonl"), folder / "rows.jsonl", folder / "more.jsonl")
    small = ["--device-pages", "34", "--host-pages", "40", "--prefetch-threshold", "0"]
    stored = ["--storage", "sim:loss=0.3", *small, "--requests", str(more), "--check", "off"]
    hybrid = ["--components", "full,swa,mamba", "--mamba-states", "40", "--device-pages", "60"]
    limits = ["--slo", "ttft=20ms,tpot=1ms,itl=1ms,e2e=1s"]
    blocks = [str(folder / "blocks.jsonl"), "--speed", "9000", "--requests", str(rows), *limits]
    exclusive = ["--host-pages", "99", "--write-policy", "write_back", "--exclusive"]
    wants = ["--eviction", "cost_aware", "--ttl", "1h", "--pin", "0:64"]
    moved, trips = ["--prefill-replicas", "1", "--decode-replicas", "1"], folder / "trips.jsonl"
    documents = [
        written(folder, "replay", *blocks, "--check", "every"),
        written(folder, "replay", turns, *hybrid, "--pp", "2"),
        written(folder, "replay", turns, "--mode", "hits", *exclusive),
        written(folder, "replay", turns, *stored),
        written(folder, "replay", turns, *wants),
        written(folder, "replay", turns, "--replicas", "2", "--router", "prefix-aware"),
        written(folder, "replay", turns, *moved, "--requests", str(trips)),
    ]
    compare("hicache replay", documents)
    assert documents[0]["warnings"]
    lines = [line for path in (rows, more, trips) for line in path.read_text().splitlines()]
    compare("hicache replay --requests", [json.loads(line) for line in lines])


def test_inspect(folder: Path) -> None:
    turns = str(folder / "turns.jsonl")
    fast = [mooncake([n % 3], timestamp=0.1 * n) for n in range(20)]
    strange = str(write(folder / "fast.jsonl", *fast))
    compare("hicache inspect", [written(folder, "inspect", name) for name in (turns, strange)])


def test_curve(folder: Path) -> None:
    turns, tiers = str(folder / "turns.jsonl"), ["--device-pages", "20"]
    documents = [
        written(folder, "curve", turns, *tiers, "--model", "tiny"),
    ]
    compare("hicache curve", documents)


def test_reports_and_comparisons(folder: Path) -> None:
    turns, hits = str(folder / "turns.jsonl"), str(folder / "hits.html")
    small = ["--device-pages", "34", "--check", "off"]
    sides = []
    for name, options in (("a", []), ("b", ["--storage", "sim:"])):
        sides.append([str(folder / f"{name}.{kind}") for kind in ("html", "jsonl")])
        page, rows = sides[-1]
        command = ["replay", turns, *small, "--host-pages", "40", *options]
        assert main([*command, "--html", page, "--requests", rows]) == 0
    assert main(["replay", turns, *small, "--mode", "hits", "--html", hits]) == 0
    reports = [written(folder, "report", page) for page in (sides[0][0], sides[1][0], hits)]
    reports[0]["slo"] = {"ttft_s": 1.0, "tpot_s": None}
    met = {"attained_rate": 0.5, "goodput_requests_per_s": 2.0}
    more = {"missed": {"ttft": 1}, "classes": [{"name": "a", "requests": 1}]}
    reports[0]["variants"][0]["slo"] = met | more
    reports[0]["curve"] = {
        "capacities_tokens": [1],
        "capacities_bytes": [1],
        "working_set_tokens": 1,
        "policies": {"lru": {"hit_rates": [0.5]}},
    }
    compare("hicache report", [checked("", one) for one in reports])
    (page, rows), (other, others) = sides
    compared = written(folder, "compare", page, other, "--requests", rows, others)
    weaker = written(folder, "compare", page, hits)
    assert weaker["warnings"]
    compare("hicache compare", [compared, weaker])


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
    assert {key for line in lines for key in line} >= {"decisions", "key", "variant", "load"}


def test_models(capsys: Capsys) -> None:
    assert main(["models", "--json"]) == 0
    compare("hicache models", [json.loads(capsys.readouterr().out)])


def test_fuzz(folder: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.chdir(folder)
    hunt = ["fuzz", "--seed", "16", "--operations", "25", "--jobs", "1", "--sequences", "30"]
    with planted(BUG):
        found = written(folder, *hunt, code=11)
        compare("hicache fuzz", [found])
        tape = found["failures"][0]["tape"]
        compare("hicache fuzz --replay", [written(folder, "fuzz", "--replay", tape, code=11)])


def test_twin(folder: Path, profile: Path) -> None:
    turns = str(folder / "turns.jsonl")
    compare(
        "hicache twin", [written(folder, "twin", turns, "--profile", str(profile), "--limit", "4")]
    )


def test_store(folder: Path) -> None:
    address = test_store_command.fill(folder / "store")
    for action in ("list", "stats", "check"):
        compare(f"hicache store {action}", [written(folder, "store", action, address)])
    test_store_command.spoil(folder / "store", keys.context_key(test_store_command.ONE.digest))
    found = written(folder, "store", "check", address, code=12)
    compare("hicache store check", [found])
    compare("hicache store gc", [written(folder, "store", "gc", address, "--size", "0")])
