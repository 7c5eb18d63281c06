"""What was found in SGLang and vLLM fails again, from kept sequences; and what the harness once
took for a failure passes. A sequence whose release is not in .engines is not run."""

from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz.sequence import read
from tests.patience import PATIENCE_S
from traces.fuzzing.engines import known, match
from traces.fuzzing.session import Engine, constants, names

from .conftest import Opened

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
