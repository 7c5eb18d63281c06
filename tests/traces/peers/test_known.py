"""Which failures of an engine are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from traces.fuzzing.engines import match
from traces.fuzzing.session import Engine


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
