"""The suite of every file in traces/commands, and of what `hicache --help` may load."""

from typing import cast

import pytest

from hicache import registry
from tests.traces.rig import python
from traces.cli import SUMMARIES, Command, main
from traces.generators import GENERATORS

PACKAGES = ("hicache", "sim", "invariants", "traces")
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
