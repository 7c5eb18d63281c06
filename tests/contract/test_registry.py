"""A folder is a registry: what is listed, what loads, and what a wrong name is told."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hicache import registry
from hicache.core.errors import CallerError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    package = tmp_path / "folder_of_tests"
    package.mkdir()
    for name in ("__init__", "base", "_hidden", "two_words", "plain"):
        (package / f"{name}.py").write_text(f"NAME = {name!r}\n")
    (package / "explosive.py").write_text("raise RuntimeError('imported')\n")
    (package / "notes.txt").write_text("not a module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package.name
    for module in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[module]


def test_names_are_files_except_base_and_hidden_ones(folder: str) -> None:
    assert registry.names(folder) == ["explosive", "plain", "two-words"]


def test_load_takes_either_spelling_and_imports_nothing_else(folder: str) -> None:
    assert registry.load(folder, "two-words").NAME == "two_words"
    assert registry.load(folder, "two_words") is registry.load(folder, "two-words")
    assert f"{folder}.explosive" not in sys.modules
    with pytest.raises(RuntimeError, match="imported"):
        registry.load(folder, "explosive")


@pytest.mark.parametrize(
    "name", ["base", "_hidden", "", "../plain", "plain.two_words", "Plain", "os", "plain\n"]
)
def test_unknown_entries_are_refused_with_those_that_exist(folder: str, name: str) -> None:
    with pytest.raises(CallerError, match="expected one of explosive, plain, two-words") as caught:
        registry.load(folder, name)
    assert "\n" not in str(caught.value)


def test_an_entry_of_the_user_is_found_until_it_is_removed() -> None:
    package, mine = registry.EVICTION_POLICIES, object()
    before = registry.names(package)
    registry.add(package, "mine-own", mine)
    assert registry.load(package, "mine_own") is mine
    assert "mine-own" in registry.names(package)
    registry.remove(package, "mine-own")
    assert registry.names(package) == before
    with pytest.raises(CallerError, match=r"; did you mean lru\?; for your own: --eviction path"):
        registry.load(package, "lur")
    for taken in ("lru", "lru-path", "Mine", ""):
        with pytest.raises(CallerError, match="expected a name in lower case that none of"):
            registry.add(package, taken, None)
