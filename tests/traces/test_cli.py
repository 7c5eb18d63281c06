"""The command from end to end: generate, inspect, replay; results, interrupts, determinism."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hicache.core.actions import Outcome
from hicache.core.core import Core
from hicache.core.errors import CoreBug
from hicache.core.events import Event
from invariants.base import Violation
from invariants.books.story import brief
from sim.errors import HazardError, StuckError
from traces.cli import main
from traces.commands import inspect
from traces.formats.reading import Lines
from traces.replaying import playing
from traces.terminal.output import write_whole

from .rig import Capsys, Patch, fails, replayed


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
    given = replayed(tmp_path, turns, *words)
    assert given["options"] == {"limit": "9", "host-ratio": "1.5", "device-tokens": "4Ki"}
    again.write_text(json.dumps({"options": given["options"]}))
    assert (
        replayed(tmp_path, turns, "--config", str(toml), "--limit", "9")["digest"]
        == given["digest"]
    )
    assert replayed(tmp_path, turns, f"--config={again}")["digest"] == given["digest"]
    capsys.readouterr()
    for text, said in (
        ("limit = ", "few.toml: expected options such as"),
        ("limit = 'x'", "--limit: expected a number"),
        ("limits = 7", "unknown option: [limits]; did you mean --limit?"),
    ):
        toml.write_text(text)
        assert said in fails(capsys, "replay", turns, "--config", str(toml))


def test_round_trip(turns: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    assert main(["inspect", turns, "--json", str(seen)]) == 0
    inspected = json.loads(seen.read_text())
    found = replayed(tmp_path, turns, "--mode", "hits", "--device-tokens", "1M")
    assert inspected["requests"] == found["trace"]["requests"] == 30
    assert inspected["ceiling_hit_rate"] == found["whole"]["hit_rate"]
    assert inspected["ceiling_hit_tokens"] == found["whole"]["hit_tokens"]["device"]
    timed = replayed(tmp_path, turns, "--device-pages", "100", "--host-pages", "400")
    # what a turn generated is known, so timed turns hit as much as counted ones
    assert timed["whole"]["hit_rate"] == found["whole"]["hit_rate"]
    assert timed["whole"]["hit_tokens"]["host"] > 0


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
    found = json.loads(out.read_text())
    assert (found["complete"], found["interrupted"]) == (False, True)
    assert (found["served_requests"], found["trace"]["requests"]) == (served, 30)
    # the second half of what was served, not of the trace
    assert found["steady"]["requests"] == served - served // 2
    assert sum(turn["requests"] for turn in found.get("turns", [])) in (0, served)
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
    said = text.splitlines()
    assert "hicache: forged" not in said
    assert ("    hicache: forged" in said) == ("forged" in str(error))
    if code > 10:
        assert str(error).splitlines()[0] in text
        return
    assert said[0] == "Traceback (most recent call last):"
    assert any("raise error" in line for line in said)
    assert said[-1].startswith("hicache: this is a defect of hicache; please report it")
    assert said[-1].endswith("hicache inspect 'my trace'")


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
    said = capsys.readouterr().err
    assert "KeyError: 'node 7'\nstory:\n    op " in said
    assert f"    op 19: {brief(seen[18])}\n" in said
    assert f"    last operation: op 20, not answered: {brief(seen[19])}\n" in said
    assert said.splitlines()[-1].endswith(f"hicache replay {turns} --mode hits")


def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(str(link), ["new"])
    assert link.is_symlink()
    assert target.read_text() == "new"
    write_whole("/dev/null", ["gone"])
    assert Path("/dev/null").is_char_device()


def test_lines_count_from_the_first_line_of_the_file() -> None:
    lines = Lines("x", [b"\n", b'{"a": 1}\n', b"\n", b'{"a": 2}\n'])
    records = lines.records(dict[str, int])
    assert [(lines.number, record["a"]) for record in records] == [(2, 1), (4, 2)]
