"""What was found in SGLang and vLLM fails again, from kept tapes; and what the harness once took
for a failure passes. A tape whose release is not in .engines is not run."""

from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz.sequence import read
from tests.patience import PATIENCE_S
from traces.fuzzing.engines import known, match
from traces.fuzzing.session import Engine, constants, names

from .conftest import Opened

ROOT = Path(__file__).parents[3]
TAPES = sorted((ROOT / "tests/corpus/peers").glob("*/*.tape"))
RELEASES = {name: constants(name)["RELEASES"] for name in names()}
KNOWN = {path: RELEASES[read(path).target] for path in TAPES}
PLAYED = [path for path, releases in KNOWN.items() if read(path).release in releases]
MENDED = [path for path in KNOWN if path not in PLAYED]


def named(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("path", PLAYED, ids=named)
def test_what_was_found_fails_again(opened: Opened, path: Path) -> None:
    """The notes of a tape say which law it breaks; an empty kind is none. A failure is known."""
    tape = read(path)
    session = opened(f"{tape.target}=={tape.release}")
    said = session.ask({"do": "play", "tape": path.read_text()}, PATIENCE_S)
    found = said["failure"] or {"kind": ""}
    assert found["kind"] == tape.notes["kind"]
    if found["kind"]:
        explain = {"do": "explain", "tape": path.read_text(), "head": ""}
        ran = session.ask(explain, PATIENCE_S)["functions"]
        where = [*([str(one[0]), str(one[2])] for one in found["lines"]), *ran]
        assert match(known(tape.target), session.engine, found, where) is not None


@pytest.mark.parametrize("path", MENDED, ids=named)
def test_what_was_found_in_older_releases_is_mended(opened: Opened, path: Path) -> None:
    newest = KNOWN[path][-1]
    said = opened(f"{read(path).target}=={newest}").ask(
        {"do": "play", "tape": path.read_text()}, PATIENCE_S
    )
    if said["unfit"]:
        pytest.skip("it needs a connector that is not played")
    assert not said["failure"]


def test_a_known_failure_is_matched_by_law_release_and_functions() -> None:
    row: dict[str, Any] = {"law": "MATCH", "kind": "device", "functions": ["cache.py:match"]}
    row |= {"first": "1.1", "last": "1.2"}

    def found(release: str, code: str = "MATCH", kind: str = "device short", **other: Any) -> bool:
        ran = other.get("ran", [("engine/cache.py", "match")])
        engine = Engine("made-up", Path(), release, ("1.0", "1.1", "1.2", "1.3"))
        return match([row], engine, {"code": code, "kind": f"{code} {kind}"}, ran) is row

    assert found("1.1")
    assert found("1.2")
    assert not found("1.0")
    assert not found("1.3")
    assert not found("1.1", code="OWN")
    assert not found("1.1", kind="host")
    assert not found("1.1", ran=[("engine/cache.py", "insert")])
    row["last"] = None
    assert found("1.3")
