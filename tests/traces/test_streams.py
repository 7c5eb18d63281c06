"""What a command says to a reader who left, to a full disk, to nobody; signals while it loads; its
version; and its memory for each request of a trace."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from hicache.version import VERSION
from invariants.fuzz import sequence as sequences
from tests.needs import PATIENCE_S
from traces.cli import main

from .rig import BUG, ROOT, Capsys, failing_sequence, mooncake, python, write

pytestmark = pytest.mark.usefixtures("here")

HUNT = ("fuzz", "--seed", "1", "--sequences", "3", "--operations", "25", "--jobs", "1")


@pytest.fixture
def failing() -> str:
    Path("failing.jsonl").write_text(sequences.dumps(failing_sequence()))
    return "failing.jsonl"


def ran(words: Iterable[str], shell: str, bug: str = "") -> tuple[str, str]:
    """What a shell prints where `hicache` stands for the command. bug: planted in it."""
    module = f"tests.planted.run {bug}" if bug else "traces"
    program = f'hicache() {{ "$PY" -m {module} {" ".join(words)}; }}; {shell}'
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PY": sys.executable}
    how: dict[str, Any] = {"env": environment, "timeout": PATIENCE_S, "check": False}
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, **how)
    return done.stdout, done.stderr


GONE = "true; echo ${PIPESTATUS[0]}"


@pytest.mark.parametrize(
    "shell",
    [f"hicache 2>&1 | {GONE}", "hicache >&- 2>&-; echo $?"],
    ids=["left", "closed"],
)
def test_a_closed_pipe_changes_neither_exit_code_nor_files(shell: str) -> None:
    out, err = ran((*HUNT, "--json", "out.json"), shell, BUG)
    assert out == "11\n"
    assert "Traceback" not in err
    assert "Broken pipe" not in err
    assert json.loads(Path("out.json").read_text())["exit_code"] == 11
    assert len(list(Path("fuzz-failures").iterdir())) == 2


@pytest.mark.parametrize(
    ("words", "shell"),
    [("--jobs 0", f"hicache 2>&1 | {GONE}"), ("--replay gone", "hicache 2>/dev/full; echo $?")],
)
def test_bad_input_exits_with_2_even_with_closed_streams(words: str, shell: str) -> None:
    assert ran(("fuzz", words), shell) == ("2\n", "")


def test_a_full_disk_is_reported_in_one_line(failing: str) -> None:
    out, err = ran(("fuzz", "--replay", failing), "hicache >/dev/full; echo $?", BUG)
    assert out == "2\n"
    assert err.count("\n") == 1
    assert "no space left to write the report: No space left on device; free some" in err


def test_unencodable_characters_are_escaped(failing: str) -> None:
    Path(failing).rename("failing…")
    out, err = ran(("fuzz", "--replay", "*iling*"), "PYTHONIOENCODING=ascii hicache; echo $?", BUG)
    assert (out.splitlines()[-1], err) == ("11", "")
    assert "replay: hicache fuzz --replay 'failing\\u2026'" in out


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("package", "module"), [("hicache", "traces.cli"), ("traces", "rich")])
def test_an_interrupt_while_modules_load_is_quiet(package: str, module: str) -> None:
    code = f"""
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
for name in ("cyclopts", "traces.cli"):
    sys.modules.pop(name, None)
sys.argv = ["hicache", "inspect", "trace.jsonl"]
runpy.run_module({package!r}, run_name="__main__", alter_sys=False)
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hicache: interrupted\n")


@pytest.mark.usefixtures("signals")
def test_an_ignored_interrupt_stays_ignored() -> None:
    code = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import traces.start
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""
    assert python("-c", code).stdout == "True\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_version(capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(f"hicache {VERSION} (")
    assert version("hicache") == VERSION


FEW, MANY = 1_500, 6_000
CHILD = """
import resource, sys
from traces.cli import main
for path in sys.argv[1:3]:
    assert main([*sys.argv[3:], path]) == 0
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
"""
HITS = ["--mode", "hits", "--device-pages", "64", "--page-size", "512", "--check", "off"]
MOST_BYTES = 250


def written(path: Path, requests: int) -> Path:
    return write(path, *(mooncake([index % 50], timestamp=index) for index in range(requests)))


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
@pytest.mark.parametrize("command", ["replay", "curve"])
def test_a_request_costs_few_bytes(command: str, tmp_path: Path) -> None:
    options = HITS if command == "replay" else []
    traces = [str(written(tmp_path / f"{count}.jsonl", count)) for count in (FEW, MANY)]
    lines = python("-c", CHILD, *traces, command, *options, check=True).stderr.splitlines()
    few, many = (int(line) for line in lines if line.isdigit())
    assert (many - few) / (MANY - FEW) < MOST_BYTES
