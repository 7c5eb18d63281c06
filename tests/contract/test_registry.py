"""A folder is a registry: what is listed, what loads, and what a wrong name is told. The suite of
every command, and of what `hicache --help` may load."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from hicache import registry
from hicache.core.errors import CallerError
from tests.traces.rig import python
from traces.cli import SUMMARIES, Command, main
from traces.generators import GENERATORS


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


COMMANDS = "traces.commands"
NAMES = registry.names(COMMANDS)
# Of what `hicache --help` loads.
LIGHT = {"traces.cli", "traces.terminal.options", "traces.terminal.streams", "hicache.core.errors"}


def load(name: str) -> Command:
    return cast(Command, registry.load(COMMANDS, name))


_LOADED = """
import os, sys
for name in filter(None, sys.argv[1].split(",")):
    __import__(name)
from traces.cli import main
for name in sys.argv[2:]:
    if not os.fork():
        try:
            main([*filter(None, [name]), "--help"])
        except SystemExit:
            pass
        print(name, *sys.modules, file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def loaded(*names: str, before: str = "") -> dict[str, set[str]]:
    """Modules of a process after the help of each command. before: what all have loaded anyway."""
    done = python("-c", _LOADED, before, *names, check=True)
    assert done.stdout.count("Usage: hicache") == len(names)
    result = dict(line.partition(" ")[::2] for line in done.stderr.splitlines())
    return {name: set(result[name].split()) for name in names}


def test_every_command_is_listed() -> None:
    assert sorted(NAMES) == sorted(SUMMARIES)


@pytest.mark.parametrize(
    "arguments",
    [[], *([name] for name in NAMES), *(["generate", name] for name in GENERATORS)],
    ids=" ".join,
)
def test_help_of_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: {' '.join(['hicache', *arguments])} ")
    assert "(default: None)" not in text
    assert max(map(len, text.splitlines())) <= 80
    listed = NAMES if not arguments else GENERATORS if arguments == ["generate"] else ()
    assert all(f"\n  {name} " in text for name in listed)


def test_help_loads_no_command() -> None:
    result = loaded("")[""]
    assert result >= LIGHT
    assert not [item for item in result if item.startswith("traces.commands.")]
    assert not result & {"numpy", "simpy", "torch", "sim", "invariants"}


def test_a_command_loads_no_other_and_no_torch() -> None:
    """Every option is there before any device is."""
    for name, result in loaded(*NAMES, before="traces.replaying.playing").items():
        others = {f"{COMMANDS}.{other.replace('-', '_')}" for other in NAMES if other != name}
        assert not result & others, name
        assert "torch" not in result, name
