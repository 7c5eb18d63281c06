"""Real processes that are killed while they write: nothing wrong, torn or lost."""

from __future__ import annotations

from pathlib import Path

from tests.storage import kill


def test_killed_writers(tmp_path: Path) -> None:
    found = kill.run(tmp_path, points=48, seed=7)
    assert {name: found[name] for name in kill.BAD} == dict.fromkeys(kill.BAD, 0)
    assert found["kills"] == 48
    assert found["done"] > 100
