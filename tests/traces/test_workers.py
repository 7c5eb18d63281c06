"""Workers that cannot start, are lost or lose their parent; and what killed commands left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from traces.terminal import output
from traces.terminal.output import write_json

from .rig import Patch

pytestmark = pytest.mark.usefixtures("here")

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
HUNT = ("fuzz", "--sequences", "4", "--operations", "25", "--seed", "7", "--jobs", "2")


@contextmanager
def started(*words: str, **given: Any) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own."""
    with subprocess.Popen(
        [sys.executable, *words],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **given,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def until(happens: Callable[[], object]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not happens() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(happens())


# -- workers that cannot start


def test_no_file_descriptors_for_workers_is_one_line() -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

    with started("-m", "traces", *HUNT, preexec_fn=few) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert said == (
        "hicache: --jobs 2: expected that worker processes can be started, found: Too many open "
        "files; give --jobs 1\n"
    )


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os._exit(7)", "it ended with exit code 7; its own message is above"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "it was ended by signal 9 (SIGKILL), as the system does when memory runs out",
        ),
    ],
)
def test_a_lost_worker_says_how_it_ended(end: str, said: str) -> None:
    program = f"""
import os, signal, sys
from traces.cli import main
from traces.fuzzing.work import Work
class Dying(Work):
    def __call__(self, seed):
        {end}
if __name__ == "__main__":
    from traces.commands import fuzz
    fuzz.Work = Dying
    sys.exit(main({HUNT!r}))
"""
    Path("program.py").write_text(program)
    with started("program.py") as process:
        _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 17
    assert "a worker was lost near the sequence of seed 7" in told
    assert said in told


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    "sent",
    [
        "os.kill(os.getpid(), signal.SIGINT)",
        # as when the system gives the signal to another thread of the process
        "signal.getsignal(signal.SIGINT)(signal.SIGINT, None)",
    ],
)
def test_an_interrupt_while_the_command_waits_for_workers_ends_it(sent: str) -> None:
    Path("program.py").write_text(
        f"""
import os, signal, sys
from multiprocessing import connection
from traces.cli import main
wait = connection.wait
def interrupted(*given):
    {sent}
    return wait(*given)
connection.wait = interrupted
if __name__ == "__main__":
    sys.exit(main({HUNT!r}))
"""
    )
    with started("program.py") as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said == "hicache: interrupted; found so far:\n"
    assert process.returncode == 130


# -- leftovers


def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(PATIENCE_S)
    return process.pid


def test_drafts_of_dead_processes_are_removed_and_nothing_else() -> None:
    host, gone = output._HOST, dead()
    left = [f".hicache-{host}-{gone}-0.tmp", f"hicache-{host}-{gone}-abcdefgh"]
    kept = [
        f".hicache-{host}-{os.getppid()}-0.tmp",  # it runs
        f".hicache-other-{gone}-0.tmp",  # of another machine
        f".hicache-{host}-{gone}.json",
        f"hicache-{host}-{gone}.jsonl",
        f"my.hicache-{host}-{gone}-0.tmp",
        f".{gone}.tmp",
    ]
    for name in (*left, *kept):
        if name.endswith("-abcdefgh"):
            Path(name).mkdir()
            Path(name, "small.jsonl").touch()
        else:
            Path(name).write_text("mine")
    write_json("out.json", {})
    assert sorted(one.name for one in Path().iterdir()) == sorted([*kept, "out.json"])


def test_a_temporary_folder_removes_the_folders_of_killed_commands(monkeypatch: Patch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(Path.cwd()))
    code = """
import os, tempfile
tempfile.tempdir = os.getcwd()
from traces.terminal.output import temporary_folder
with temporary_folder() as folder:
    (folder / "small.jsonl").touch()
    os.kill(os.getpid(), 9)
"""
    with started("-c", code) as process:
        process.wait(PATIENCE_S)
    assert len(list(Path().iterdir())) == 1
    with output.temporary_folder() as folder:
        assert [one.name for one in Path().iterdir()] == [folder.name]
    assert list(Path().iterdir()) == []
