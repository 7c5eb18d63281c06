"""SGLang and vLLM as targets: every law holds, but for what is known. What was found fails again,
from kept sequences; and what the harness once took for a failure passes.

Without the newest releases in .engines (see docs/fuzzing.md) nothing here runs.
"""

from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz.sequence import read
from tests.needs import PATIENCE_S
from traces.fuzzing.engines import known, match
from traces.fuzzing.session import Engine, constants, names

from .conftest import Opened, fuzzed, script_of

SGLANG, VLLM = "sglang==0.5.23", "vllm==0.32.0"
CORPUS = Path(__file__).parents[2] / "corpus/engines"
HOST = ("hit on device", "hit on host", "load began", "backup began", "evict")
STORE = ("hit in the store", "lookup began", "fetch began", "store began")
CALM = {"model": "full", "page": 4, "reserve": True}  # whole prompts must fit
REMOTE = CALM | {"connector": "remote", "pages": 40, "recompute": True, "entire": False, "loses": 3}
OURS = CALM | {"connector": "hicache", "pages": 16, "requests": 4, "policy": "fcfs", "store": True}
MODELS = "full+full", "full2+window", "full+align"
MOVED = "preempted, aborted, load began, backup fails, fetch began"


@pytest.mark.parametrize("core", ["rust", "python"])
@pytest.mark.parametrize("storage", ["none", "zero_copy", "hicache"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba", "full+swa+mamba"])
def test_laws_hold_in_sglang(opened: Opened, components: str, storage: str, core: str) -> None:
    """All that is reached is reached, and hybrids with a store fail as is known."""
    fixed = {"core": core, "components": components, "events": False, "host": 30}
    failures, counts = fuzzed(opened(SGLANG), 8, {**fixed, "storage": storage})
    hybrid = storage != "none" and components != "full"
    known = {"MATCH store anchor", "BYTES stale state"} if hybrid else set()
    assert {failure["kind"] for failure in failures} <= known
    assert all(counts[item] for item in (HOST if storage == "none" else STORE))


@pytest.mark.parametrize("core", ["rust", "python"])
def test_a_script_of_sglang_fails_in_a_process_of_its_own(opened: Opened, core: str) -> None:
    """Whatever the process that wrote it has run before."""
    session = opened(SGLANG)
    fuzzed(session, 2, {"core": core, "storage": "none"})
    for name in ("prefix-without-its-state", "a-stale-state-is-copied", "stored-twice-on-host"):
        text = (CORPUS / "sglang" / f"{name}.sequence").read_text()
        script = script_of(session, text.replace('"core":"python"', f'"core":"{core}"'))
        law = "EVENT-MIRROR" if name == "stored-twice-on-host" else "BYTES"
        assert f"Broken: {law}: " in session.script_fails(script, PATIENCE_S)
        assert "release_kv_cache(" in script.partition("def test()")[2]  # the calls that lead to it


@pytest.mark.parametrize(
    ("count", "fixed", "reached"),
    [
        (12, CALM | {"connector": ""}, "ended, preempted"),
        (12, CALM | {"connector": "cpu"}, "load began"),
        (16, REMOTE, "failed loads"),
        (16, REMOTE | {"model": "full+window"}, "failed loads"),
        *((30, OURS | {"model": model}, MOVED) for model in MODELS),
    ],
)
def test_laws_hold_in_vllm(opened: Opened, count: int, fixed: dict[str, Any], reached: str) -> None:
    failures, counts = fuzzed(opened(VLLM), count, fixed)
    assert failures == []
    assert all(counts[part] for part in reached.split(", "))


def test_the_vllm_before_is_played(opened: Opened) -> None:
    failures, counts = fuzzed(opened("vllm==0.31.0"), 4, CALM | {"connector": "cpu"})
    assert failures == []
    assert counts["load began"]


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("loads-deadlock", "PROGRESS"),
        ("one-token-loaded-for-ever", "PROGRESS"),
        ("computed-again-without-its-window", "BYTES"),
    ],
)
def test_a_script_of_vllm_fails_by_itself(opened: Opened, name: str, law: str) -> None:
    script = script_of(opened(VLLM), (CORPUS / "vllm" / f"{name}.sequence").read_text())
    last = opened(VLLM).script_fails(script, PATIENCE_S).rpartition("\n")[2]
    assert last.startswith(f"Broken: {law}")


ROOT = Path(__file__).parents[3]
SEQUENCES = sorted((ROOT / "tests/corpus/engines").glob("*/*.sequence"))
RELEASES = {name: constants(name)["RELEASES"] for name in names()}
KNOWN = {path: RELEASES[read(path).target] for path in SEQUENCES}
PLAYED = [path for path, releases in KNOWN.items() if read(path).release in releases]
MENDED = [path for path in KNOWN if path not in PLAYED]


def named(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("path", PLAYED, ids=named)
def test_what_was_found_fails_again(opened: Opened, path: Path) -> None:
    """The notes of a sequence say which law it breaks; an empty kind is none. A failure is
    known."""
    sequence = read(path)
    session = opened(f"{sequence.target}=={sequence.release}")
    message = session.ask({"do": "play", "sequence": path.read_text()}, PATIENCE_S)
    result = message["failure"] or {"kind": ""}
    assert result["kind"] == sequence.notes["kind"]
    if result["kind"]:
        explain = {"do": "explain", "sequence": path.read_text(), "head": ""}
        ran = session.ask(explain, PATIENCE_S)["functions"]
        where = [*([str(item[0]), str(item[2])] for item in result["lines"]), *ran]
        assert match(known(sequence.target), session.engine, result, where) is not None


@pytest.mark.parametrize("path", MENDED, ids=named)
def test_what_was_found_in_older_releases_is_mended(opened: Opened, path: Path) -> None:
    newest = KNOWN[path][-1]
    message = opened(f"{read(path).target}=={newest}").ask(
        {"do": "play", "sequence": path.read_text()}, PATIENCE_S
    )
    if message["unfit"]:
        pytest.skip("it needs a connector that is not played")
    assert not message["failure"]


def test_a_known_failure_is_matched_by_law_release_and_functions() -> None:
    row: dict[str, Any] = {"law": "MATCH", "kind": "device", "functions": ["cache.py:match"]}
    row |= {"first": "1.1", "last": "1.2"}

    def matched(
        release: str, code: str = "MATCH", kind: str = "device short", **other: Any
    ) -> bool:
        ran = other.get("ran", [("engine/cache.py", "match")])
        engine = Engine("made-up", Path(), release, ("1.0", "1.1", "1.2", "1.3"))
        return match([row], engine, {"code": code, "kind": f"{code} {kind}"}, ran) is row

    assert matched("1.1")
    assert matched("1.2")
    assert not matched("1.0")
    assert not matched("1.3")
    assert not matched("1.1", code="OWN")
    assert not matched("1.1", kind="host")
    assert not matched("1.1", ran=[("engine/cache.py", "insert")])
    row["last"] = None
    assert matched("1.3")
