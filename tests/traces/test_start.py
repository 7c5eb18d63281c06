"""The first code of the command: signals while it loads, misspelt words, its version."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from hicache.version import VERSION
from tests.patience import PATIENCE_S
from traces.cli import main

from .rig import Capsys, fails

pytestmark = pytest.mark.usefixtures("here")

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("module", ["traces.cli", "cyclopts", "numpy", "rich"])
@pytest.mark.parametrize("package", ["hicache", "traces"])
def test_an_interrupt_while_modules_load_is_quiet(module: str, package: str) -> None:
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
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hicache: interrupted\n")


@pytest.mark.usefixtures("signals")
def test_an_ignored_interrupt_stays_ignored() -> None:
    code = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import traces.start
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE_S
    )
    assert done.stdout == b"True\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("repaly", "did you mean replay?"),
        ("--versoin", "did you mean --version?"),
        ("replay --jsn x", "did you mean --json? (see hicache replay --help)"),
        ("replay --write-policy write_thru", "did you mean write_through?"),
        ("generate multiturn --client 3 --round 4 --sed 1", "did you mean --clients?"),
        ("replay --scheduler lpm", "found 'lpm'; did you mean longest-prefix?"),
        ("replay --kv-dtype fp8_e4m3", "did you mean fp8?"),
        ("replay --model meta-llama/Llama-3.1-8B-Instruct", "did you mean llama-3.1-8b?"),
        ("models meta-llama/Llama-3.1-8B-Instruct", "did you mean llama-3.1-8b?"),
        ("replay --host-bytes 512", "(8,388,608 bytes), found 512 bytes; give more, or no host "),
        ("replay --host-bytes 512", "did you mean 512GB?"),
        ("replay --why r4711", "found 'r4711'"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(words: str, hint: str, capsys: Capsys) -> None:
    assert hint in fails(capsys, *words.split())


def test_the_version(capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(f"hicache {VERSION} (")
    assert version("hicache") == VERSION
