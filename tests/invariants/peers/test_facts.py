"""What is said of engines without importing them: the constants at the head of their files, and
which failures are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invariants.fuzz import facts
from invariants.fuzz import targets as engines

FILE = '''"""An engine."""

import an_engine_that_is_not_installed

DISTRIBUTION = "made-up"
RELEASES = ("1.0", "1.1")
STUBS = ("kernels",)
OTHER = an_engine_that_is_not_installed.VALUE
'''


def test_the_file_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "made_up.py").write_text(FILE)
    found = facts.read(tmp_path / "made_up.py")
    assert (found.name, found.distribution, found.package) == ("made-up", "made-up", "made_up")
    assert (found.releases, found.stubs, found.bare) == (("1.0", "1.1"), ("kernels",), ())
    (tmp_path / "other.py").write_text('LIKE = "made_up"\nSTUBS = ("kernels", "net")\n')
    other = facts.read(tmp_path / "other.py")
    assert (other.name, other.package, other.stubs) == ("other", "made_up", ("kernels", "net"))


def test_every_engine_says_what_it_must() -> None:
    assert [str(facts.ENGINES)] == list(engines.__path__)
    for file in facts.engines().values():
        found = facts.read(file)
        for texts in (found.releases, found.needs, found.stubs, found.bare):
            assert isinstance(texts, tuple)
            assert all(isinstance(one, str) for one in texts)
        assert all("==" in need for need in found.needs)


def test_every_table_of_known_failures_can_be_read() -> None:
    for name in ("sglang", "vllm"):
        rows, releases = facts.known(name), facts.read(facts.engines()[name]).releases
        assert rows
        for row in rows:
            assert row.keys() == {"report", "law", "kind", "functions", "first", "last", "text"}
            assert {row["first"], row["last"] or row["first"]} <= set(releases), row
    assert facts.known("hicache") == []


def test_a_known_failure_is_matched_by_law_release_and_functions() -> None:
    row = {"law": "MATCH", "kind": "device", "functions": ["cache.py:match"]}
    row |= {"first": "1.1", "last": "1.2"}
    releases = ("1.0", "1.1", "1.2", "1.3")

    def found(release: str, code: str = "MATCH", kind: str = "device short", **other: Any) -> bool:
        where = other.get("where", [("engine/cache.py", "match")])
        failure = {"code": code, "kind": f"{code} {kind}"}
        return facts.match([row], releases, release, failure, where) is row

    assert found("1.1")
    assert found("1.2")
    assert not found("1.0")
    assert not found("1.3")
    assert not found("2.0")  # counts as the newest
    assert not found("1.1", code="OWN")
    assert not found("1.1", kind="host")
    assert not found("1.1", where=[("engine/cache.py", "insert")])
    row["last"] = None
    assert found("2.0")
