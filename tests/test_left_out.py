"""On any machine the suite is green or says in one line why not, and names what it left out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import missing
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
A_SUITE = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_store(number):
    pytest.skip("hicache: no store\\n is here")

@pytest.mark.skip(reason="no GPU")
def test_gpu():
    pass

def test_runs():
    pass
"""
A_FILE = "import pytest\npytest.importorskip('nobody_has_it', exc_type=ImportError)\n"


def suite(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """pytest over tests of the folder, with what is in the suite's own conftest."""
    plugins = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", folder, *words, folder],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("words", [(), ("-n", "2")])
def test_what_was_left_out_is_named_before_the_last_line(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "test_some.py").write_text(A_SUITE)
    (tmp_path / "test_whole.py").write_text(A_FILE)
    file = tmp_path / "left-out"
    done = suite(tmp_path, *words, "--left-out", str(file))
    assert done.returncode == 0, done.stdout
    *_, title, store, whole, gpu, last = done.stdout.splitlines()
    assert title == "Left out: 4 tests and 1 whole file"
    assert store == "  3 tests: no store is here"
    assert gpu == "  1 test: no GPU"
    assert whole.startswith("  1 whole file: could not import 'nobody_has_it'")
    assert last.startswith("1 passed, 5 skipped in ")
    assert file.read_text().splitlines() == [title, store, whole, gpu]


def test_a_folder_without_room_is_one_line(tmp_path: Path) -> None:
    if not os.access("/proc/self", os.R_OK) or shutil.disk_usage("/proc").free:
        missing("no file system without room is here")
    done = suite(tmp_path, TMPDIR="/proc")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr == (
        "ERROR: the tests need 1,000 MB for their files, and /proc has 0 MB left; make room, or "
        "name another folder in TMPDIR\n\n"
    )


def test_what_is_missing_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no server"):
        missing("no server")
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="no server"):
        missing("no server")


def test_signals_act_as_usual_where_the_suite_began_with_them_ignored(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import os, signal, subprocess, sys\n"
        "import pytest\n"
        "def test_own(signals):\n"
        "    with pytest.raises(KeyboardInterrupt):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "def test_of_a_child(signals):\n"
        "    for number in (signal.SIGINT, signal.SIGHUP):\n"
        "        code = f'import os; os.kill(os.getpid(), {number:d}); print(1)'\n"
        "        done = subprocess.run([sys.executable, '-c', code], capture_output=True)\n"
        "        assert done.returncode == -number\n"
        "def test_after():\n"
        "    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        "    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN\n"
    )
    before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGHUP)}
    try:
        done = suite(tmp_path)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert "3 passed" in done.stdout, done.stdout


def of_make_check(*settings: str) -> list[str]:
    """The commands of `make check`."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "check", *settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ, MAKEFLAGS=""),
        timeout=PATIENCE_S,
    )
    return done.stdout.splitlines()


def test_the_last_lines_of_make_check_are_what_was_left_out() -> None:
    [tests] = [line for line in of_make_check() if " pytest " in line]
    assert of_make_check()[-1] == f"cat {tests.split('--left-out=')[1]}"


def test_a_virtual_environment_that_was_half_made_is_made_again(tmp_path: Path) -> None:
    """As where Debian's python3-venv is missing: there is a bin/python, and no pip."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nmkdir -p $3/bin\ntouch $3/bin/python\necho no pip\nexit 1\n")
    python.chmod(0o755)
    for _ in range(2):
        done = subprocess.run(
            ["make", "--no-print-directory", "PYTHON=./python", ".venv/bin/python"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ, MAKEFLAGS=""),
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (2, "no pip")
