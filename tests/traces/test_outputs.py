"""The command from end to end: options of a file, interrupts, errors; files that it writes: none
replaces an input, and all are whole or not there."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hicache.core import eviction
from hicache.core.actions import Outcome
from hicache.core.core import Core
from hicache.core.errors import CoreBug
from hicache.core.events import Event
from hicache.core.eviction_policies import EvictionPolicy
from hicache.core.lru import Queue, offer
from hicache.core.node import Node
from hicache.core.types import Tier
from invariants.base import Violation
from invariants.checks.queues import Coldest
from invariants.shadow.story import brief
from sim.errors import HazardError, StuckError
from traces.cli import main
from traces.commands import inspect
from traces.replaying import playing
from traces.terminal import output
from traces.terminal.output import write_whole

from .rig import Capsys, Patch, fails, input_files, replayed

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def inputs() -> dict[str, str]:
    return input_files()


# An input, and the command without the file that it writes.
WRITERS = [
    ("trace.jsonl", "replay trace.jsonl --json"),
    ("trace.jsonl", "convert trace.jsonl -o"),
    ("trace.jsonl", "replay trace.jsonl --timeline"),
    ("model.json", "replay trace.jsonl --model model.json --json"),
    ("profile.json", "replay trace.jsonl --hardware ./profile.json --json"),
    ("sequence.jsonl", "fuzz --replay sequence.jsonl --json"),
    ("trace.jsonl", "twin trace.jsonl --profile profile.json --json"),
    ("profile.json", "twin trace.jsonl --profile profile.json --recording"),
]


@pytest.mark.parametrize(("read", "words"), WRITERS, ids=[words for _, words in WRITERS])
def test_no_output_replaces_an_input(
    read: str, words: str, inputs: dict[str, str], capsys: Capsys
) -> None:
    before = sorted(os.listdir())
    for name in (read, f"./{read}", f"hard-{read}", f"soft-{read}", str(Path(read).absolute())):
        assert "which it would replace, found" in fails(capsys, *words.split(), name)
    assert {name: Path(name).read_text() for name in inputs} == inputs
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("words", [*(words for _, words in WRITERS), "generate multiturn -o"])
def test_an_output_that_cannot_be_written_is_found_before_the_work(
    words: str, inputs: dict[str, str], capsys: Capsys
) -> None:
    Path("kept").write_text("")
    Path("kept").chmod(0o444)
    Path("folder").mkdir()
    before = sorted(os.listdir())
    for name, message in (
        ("trace.jsonl/out", "found: no directory there"),
        ("missing/out", "found: no directory there"),
        ("folder", "found: a directory"),
        ("kept", "found: a read-only file"),
        ("a\0b", "expected a name, found 'a\\x00b'"),
        ("/dev/fd/99", "found: no"),
    ):
        assert message in fails(capsys, *words.split(), name)
    assert sorted(os.listdir()) == before


def test_an_output_does_not_become_a_part_of_the_folder_that_is_read(
    inputs: dict[str, str], capsys: Capsys
) -> None:
    Path("many").mkdir()
    Path("many/a.json").write_text("mine")
    for words in ("convert many -o", "inspect many --json", "sweep many -o", "size many --points"):
        for name in ("many/a.json", "many/../many/new.json"):
            message = fails(capsys, *words.split(), name)
            assert "expected a file outside the folder of the trace" in message
    assert Path("many/a.json").read_text() == "mine"
    assert os.listdir("many") == ["a.json"]
    message = fails(capsys, "inspect", "trace.jsonl", "--tokenizer", "t.json", "--json", "t.json")
    assert "expected another file than the tokenizer" in message


def test_standard_output_has_several_names(inputs: dict[str, str], capsys: Capsys) -> None:
    for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        assert main(["inspect", "trace.jsonl", "--json", name]) == 0
        output = capsys.readouterr()
        assert json.loads(output.out)["requests"] == 1
        assert "input tokens" in output.err


def test_all_files_are_written_or_none(inputs: dict[str, str], monkeypatch: Patch) -> None:
    def fill(name: str, path: Path, mode: str, pieces: Any) -> None:
        if name == "out.json":
            raise output.unwritable(name, "No space left on device")
        path.write_text("".join(pieces))

    before = sorted(os.listdir())
    monkeypatch.setattr(output, "_fill", fill)
    words = ("replay", "trace.jsonl", "--requests", "rows.jsonl", "--json", "out.json")
    assert main([*words]) == 2
    assert sorted(os.listdir()) == before


# -- what killed commands left


def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def test_drafts_of_dead_processes_are_removed_and_nothing_else() -> None:
    host, gone = output._HOST, dead()
    kept = [
        f".hicache-{host}-{os.getppid()}-0.tmp",  # it runs
        f".hicache-other-{gone}-0.tmp",  # of another machine
        f"my.hicache-{host}-{gone}-0.tmp",
    ]
    for name in (f".hicache-{host}-{gone}-0.tmp", f".hicache-{host}-{gone}-17.tmp", *kept):
        Path(name).write_text("mine")
    output.write_json("out.json", {})
    assert sorted(os.listdir()) == sorted([*kept, "out.json"])


def test_options_of_a_file_are_those_of_the_command_line(
    turns: str, tmp_path: Path, capsys: Capsys
) -> None:
    """As TOML, and as the options of a document; what the command line says goes first."""
    odd = tmp_path / "it's\x1b a turn.jsonl"  # no shell would split its name
    odd.write_bytes(Path(turns).read_bytes())
    turns = str(odd)
    toml, again = tmp_path / "few.toml", tmp_path / "again.json"
    toml.write_text('limit = 7\nhost-ratio = 1.5\ndevice-tokens = "4Ki"\nverbose = true\n')
    words = ["--limit", "9", "--host-ratio", "1.5", "--device-tokens", "4Ki"]
    value = replayed(tmp_path, turns, *words)
    assert value["options"] == {"limit": "9", "host-ratio": "1.5", "device-tokens": "4Ki"}
    again.write_text(json.dumps({"options": value["options"]}))
    assert (
        replayed(tmp_path, turns, "--config", str(toml), "--limit", "9")["digest"]
        == value["digest"]
    )
    assert replayed(tmp_path, turns, f"--config={again}")["digest"] == value["digest"]
    capsys.readouterr()
    for text, message in (
        ("limit = ", "few.toml: expected options such as"),
        ("limit = 'x'", "--limit: expected a number"),
        ("limits = 7", "unknown option: [limits]; did you mean --limit?"),
    ):
        toml.write_text(text)
        assert message in fails(capsys, "replay", turns, "--config", str(toml))


@pytest.mark.parametrize("mode", ["timed", "hits"])
def test_interrupt_prints_partial_results(
    mode: str, turns: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    @contextmanager
    def interrupting(label: str, total: int) -> Iterator[Callable[[int], None]]:
        def step(done: int) -> None:
            if mode == "hits" or done == 7:
                raise KeyboardInterrupt

        yield step

    monkeypatch.setattr(playing, "progress", interrupting)
    out, records = tmp_path / "out.json", tmp_path / "out.jsonl"
    written = ["--json", str(out), "--requests", str(records)]
    assert main(["replay", turns, "--mode", mode, *written]) == 130
    report = capsys.readouterr().out
    assert "Interrupted" in report
    assert "hit rate, token-weighted" in report
    served = 7 if mode == "timed" else 1
    assert f"This report covers {served} of 30 requests" in report
    result = json.loads(out.read_text())
    assert (result["complete"], result["interrupted"]) == (False, True)
    assert (result["served_requests"], result["trace"]["requests"]) == (served, 30)
    # the second half of what was served, not of the trace
    assert result["steady"]["requests"] == served - served // 2
    assert sum(turn["requests"] for turn in result.get("turns", [])) in (0, served)
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(rows) == served


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Violation("X", "sentence", "equation", [], "replay"), Violation.exit_code),
        (HazardError("name\nhicache: forged"), HazardError.exit_code),
        (StuckError("nothing moves"), StuckError.exit_code),
        (CoreBug("two owners"), 10),
        (AssertionError(), 10),
        (KeyError(7), 10),
        (ValueError("name\nhicache: forged"), 10),
    ],
)
def test_a_finding_and_a_defect_exit_with_their_codes_and_forge_no_line(
    error: Exception, code: int, monkeypatch: Patch, capsys: Capsys
) -> None:
    def fail(options: object, command: str) -> int:
        raise error

    monkeypatch.setattr(inspect, "run", fail)
    assert main(["inspect", "my trace"]) == code >= 10
    text = capsys.readouterr().err
    message = text.splitlines()
    assert "hicache: forged" not in message
    assert ("    hicache: forged" in message) == ("forged" in str(error))
    if code > 10:
        assert str(error).splitlines()[0] in text
        return
    assert message[0] == "Traceback (most recent call last):"
    assert any("raise error" in line for line in message)
    assert message[-1].startswith("hicache: this is a defect of hicache; please report it")
    assert message[-1].endswith("hicache inspect 'my trace'")


def test_a_defect_of_the_core_in_a_replay_comes_with_its_story(
    turns: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    real, seen = Core.handle, []

    def handle(self: Core, event: Event) -> list[Outcome]:
        seen.append(event)
        if len(seen) == 20:
            raise KeyError("node 7")
        return real(self, event)

    monkeypatch.setattr(Core, "handle", handle)
    assert main(["replay", turns, "--mode", "hits"]) == 10
    err = capsys.readouterr().err
    assert "KeyError: 'node 7'\nstory:\n    op " in err
    assert f"    op 19: {brief(seen[18])}\n" in err
    assert f"    last operation: op 20, not answered: {brief(seen[19])}\n" in err
    assert err.splitlines()[-1].endswith(f"hicache replay {turns} --mode hits")


@pytest.mark.parametrize("finder", ["COLDEST: An eviction takes", "SPEC Evicted: The core answers"])
def test_a_warmer_victim_in_a_full_pool_stops_a_replay_with_its_story(
    finder: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    real = eviction.next_victim
    if finder.startswith("SPEC"):
        monkeypatch.delattr(Coldest, "totals")

    def second(queues: list[Queue], policy: EvictionPolicy) -> Node | None:
        first = real(queues, policy)
        if len(queues[0].heaps[0]) < 20 or queues[0].tier != Tier.DEVICE:
            return first
        result = real(queues, policy)
        offer([queues], policy, first, Tier.DEVICE, 0)
        return result

    monkeypatch.setattr(eviction, "next_victim", second)
    assert main(["replay", "--check", "every", "--limit", "150", "--device-tokens", "32000"]) == 11
    assert re.search(finder + r"(?s:.*)story:\n    about ", capsys.readouterr().err)


def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(str(link), ["new"])
    assert link.is_symlink()
    assert target.read_text() == "new"
    write_whole("/dev/null", ["gone"])
    assert Path("/dev/null").is_char_device()
