"""The command from end to end: generate, inspect, replay; results, interrupts, determinism."""

from __future__ import annotations

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

from hicache import registry
from hicache.core.actions import Outcome
from hicache.core.core import Core
from hicache.core.errors import CoreBug
from hicache.core.events import Event
from invariants.base import Violation
from invariants.books.story import brief
from sim.errors import HazardError, StuckError
from tests.conversation import conversation
from tests.patience import PATIENCE_S
from traces.cli import main
from traces.commands import inspect
from traces.formats.reading import Lines
from traces.replaying import playing
from traces.terminal.output import write_whole

from .rig import Capsys, Patch, as_lines, fails, mooncake, write


@pytest.fixture
def turns(tmp_path: Path) -> str:
    path = str(tmp_path / "turns.jsonl")
    assert main(["generate", "multiturn", "--clients", "4", "--rounds", "5", "-o", path]) == 0
    return path


def replayed(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """The results of a replay that must succeed."""
    out = tmp_path / "out.json"
    assert main(["replay", *arguments, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert isinstance(found, dict)
    return found


def test_options_of_a_file_are_those_of_the_command_line(
    turns: str, tmp_path: Path, capsys: Capsys
) -> None:
    """As TOML, and as the options of a document; what the command line says goes first."""
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


def test_a_name_that_no_shell_would_split_costs_no_results(turns: str, tmp_path: Path) -> None:
    odd = tmp_path / "it's\x1b a turn.jsonl"
    odd.write_bytes(Path(turns).read_bytes())
    assert replayed(tmp_path, str(odd), "--limit", "3")["options"] == {"limit": "3"}


def test_round_trip(turns: str, tmp_path: Path, capsys: Capsys) -> None:
    seen = tmp_path / "seen.json"
    assert main(["inspect", turns, "--json", str(seen)]) == 0
    inspected = json.loads(seen.read_text())
    found = replayed(tmp_path, turns, "--mode", "hits", "--device-tokens", "1M")
    assert inspected["requests"] == found["trace"]["requests"] == 20
    assert inspected["ceiling_hit_rate"] == found["whole"]["hit_rate"]
    assert inspected["ceiling_hit_tokens"] == found["whole"]["hit_tokens"]["device"]
    timed = replayed(tmp_path, turns, "--device-pages", "100", "--host-pages", "400")
    # what a turn generated is known, so timed turns hit as much as counted ones
    assert timed["whole"]["hit_rate"] == found["whole"]["hit_rate"]
    assert timed["whole"]["hit_tokens"]["host"] > 0
    report = capsys.readouterr().out
    assert max(map(len, report.splitlines())) <= 80
    assert "\x1b" not in report
    assert "hit rate, token-weighted" in report


@pytest.mark.parametrize("mode", ["timed", "hits"])
@pytest.mark.parametrize("size", ["1", "16", "64", "512"])
def test_page_sizes(mode: str, size: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(
        b"".join(as_lines([mooncake([1, 2], 700), mooncake([1, 7, 3], 1500, timestamp=9000)]))
    )
    found = replayed(
        tmp_path, str(path), "--mode", mode, "--page-size", size, "--device-tokens", "4Ki"
    )
    whole = found["whole"]
    assert whole["hit_tokens"] == {"device": 512, "host": 0, "storage": 0}
    assert whole["computed_tokens"] == 2200 - 512


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
    assert f"This report covers {served} of 20 requests" in report
    found = json.loads(out.read_text())
    assert (found["complete"], found["interrupted"]) == (False, True)
    assert (found["served_requests"], found["trace"]["requests"]) == (served, 20)
    # the second half of what was served, not of the trace
    assert found["steady"]["requests"] == served - served // 2
    assert sum(turn["requests"] for turn in found.get("turns", [])) in (0, served)
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(rows) == served


def test_same_digest_in_another_process(turns: str, tmp_path: Path) -> None:
    """And neither torch nor transformers nor, without a page, jinja2: they load slowly."""
    digests = []
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.json"
        arguments = ["replay", turns, "--device-pages", "50", "--json", str(out)]
        script = (
            "import sys; from traces.cli import main; "
            f"code = main({arguments!r}); "
            "sys.exit(code or bool({'torch', 'transformers', 'jinja2'} & {*sys.modules}))"
        )
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            cwd=Path(__file__).parents[2],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )
        digests.append(json.loads(out.read_text())["digest"])
    assert digests[0] == digests[1]


def test_closed_pipe_is_silent() -> None:
    script = "from traces.cli import main; raise SystemExit(main(['generate', 'shared-prefix']))"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaint) == (0, b"")


def test_json_on_stdout_is_the_only_output(turns: str, capsys: Capsys) -> None:
    assert main(["replay", turns, "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["trace"]["requests"] == 20
    assert "hit rate" in printed.err


def test_a_slower_host_costs_time_and_no_hits(turns: str, tmp_path: Path) -> None:
    arguments = [turns, "--device-pages", "100", "--host-pages", "400", "--check", "off"]
    full, half, given = (
        replayed(tmp_path, *arguments, "--host-bandwidth", bandwidth)
        for bandwidth in ("50GB", "25GB", "1GB")
    )
    assert full["whole"] == half["whole"] == given["whole"]
    assert full["whole"]["hit_tokens"]["host"] > 0
    means = [found["latency_s"]["ttft"]["mean"] for found in (full, half, given)]
    assert means == sorted(means)
    assert len(set(means)) == 3


def test_latencies_add_up(tmp_path: Path) -> None:
    """One request alone: it ends one output token after another behind its first."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"".join(as_lines([mooncake([1, 2], output_length=101)])))
    latency = replayed(tmp_path, str(path))["latency_s"]
    first, step = latency["ttft"]["mean"], latency["tpot"]["mean"]
    assert 0 < first < latency["makespan"]
    assert latency["ttft"]["p99"] == latency["ttft"]["p50"] == first
    assert first + 100 * step == pytest.approx(latency["makespan"], abs=1e-6)


@pytest.mark.parametrize(
    "error",
    [
        Violation("X", "sentence", "equation", [], "replay"),
        HazardError("two writers"),
        StuckError("nothing moves"),
    ],
)
def test_a_finding_exits_with_its_own_code(
    error: Exception, monkeypatch: Patch, capsys: Capsys
) -> None:
    def find(options: object, command: str) -> int:
        raise error

    monkeypatch.setattr(inspect, "run", find)
    assert main(["inspect", "trace"]) == getattr(error, "exit_code", 0) > 10
    assert str(error) in capsys.readouterr().err


@pytest.mark.parametrize("error", [CoreBug("two owners"), AssertionError(), KeyError(7)])
def test_a_defect_exits_with_10_its_place_and_the_command(
    error: Exception, monkeypatch: Patch, capsys: Capsys
) -> None:
    def fail(options: object, command: str) -> int:
        raise error

    monkeypatch.setattr(inspect, "run", fail)
    assert main(["inspect", "my trace"]) == 10
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "Traceback (most recent call last):"
    assert any("raise error" in line for line in said)
    assert said[-1].startswith("hicache: this is a defect of hicache; please report it")
    assert said[-1].endswith("hicache inspect 'my trace'")


def test_no_line_of_a_traceback_or_a_finding_is_taken_for_one_of_the_command(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    forged = "name\nhicache: forged"
    for error in (ValueError(forged), HazardError(forged)):

        def fail(options: object, command: str, error: Exception = error) -> int:
            raise error

        monkeypatch.setattr(inspect, "run", fail)
        assert main(["inspect", "trace"]) == getattr(error, "exit_code", 10)
        said = capsys.readouterr().err.splitlines()
        assert "    hicache: forged" in said
        assert "hicache: forged" not in said


@pytest.mark.parametrize("command", [["replay"], ["sweep"]])
def test_an_error_of_a_layer_below_names_the_option(
    command: list[str], turns: str, capsys: Capsys
) -> None:
    assert main([*command, turns, "--host-bytes", "1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hicache: --host-bytes: expected at least one page of full on 1 rank")
    assert main([*command, turns, "--tp", "3"]) == 2
    said = capsys.readouterr().err
    assert (
        "--tp: expected a divisor of the 32 query heads of llama-3.1-8b, and a divisor or a "
        "multiple of its 8 cached heads, found 3; use 1, 2, 4, 8, 16 or 32" in said
    )


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


def test_ctrl_c_while_a_command_is_imported_is_one_line(monkeypatch: Patch, capsys: Capsys) -> None:
    def load(package: str, name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "load", load)
    assert main(["inspect", "trace"]) == 130
    assert capsys.readouterr().err == "hicache: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected COMMAND, one of size, compare"),
        (["--nothing"], "option: expected one of -h, --help, --version, found"),
        (["repaly"], "did you mean replay?"),
        (["host"], "host: no longer a command; use hicache sweep --host-bytes"),
        (["force", "x"], "force: no longer a command; use hicache twin"),
        (["prove"], "prove: no longer a command; use pytest tests/transformers"),
        (["chat"], "chat: no longer a command; use hicache.transformers.PrefixCache"),
        (["formats"], "formats: no longer a command; use hicache convert --formats"),
        (["mutants"], "mutants: no longer a command; use python -m pytest"),
        (["check-device"], "check-device: no longer a command; use pytest tests/devices"),
        (["gpu-check"], "gpu-check: no longer a command; use make gpu-check"),
        (["watch"], "watch: no longer a command; use hicache replay"),
        (["base"], "expected one of size, compare,"),
    ],
)
def test_unknown_commands_are_refused_in_one_line(
    arguments: list[str], said: str, capsys: Capsys
) -> None:
    assert main(arguments) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert said in found


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write_whole(str(path), ["before"])

    def pieces() -> Iterator[str]:
        yield "half"
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_whole(str(path), pieces())
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


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


def test_reading_the_conversation_trace() -> None:
    assert main(["inspect", str(conversation()), "--limit", "500"]) == 0


def test_every_example_of_the_help_that_replays_a_trace_runs(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "trace.jsonl", *(mooncake([0, 1 + n % 3, 10 + n], 1400) for n in range(12)))
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.replace("\\\n", " ").splitlines()
    wanted = " *hicache (replay trace|.* --picture)"
    examples = [line.split() for line in lines if re.match(wanted, line)]
    assert len(examples) == 4
    for example in examples:
        assert main(example[1:]) == 0, example
