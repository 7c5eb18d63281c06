"""The first code of the command: signals while it loads, misspelt words, its version."""

from __future__ import annotations

import signal
from importlib.metadata import version

import pytest

from hicache.version import VERSION
from traces.cli import main

from .rig import Capsys, python

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("package", "module"),
    [("hicache", "traces.cli"), ("traces", "cyclopts"), ("hicache", "numpy"), ("traces", "rich")],
)
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
