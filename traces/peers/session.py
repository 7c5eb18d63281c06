"""The process in which an engine runs: where its code is, how it is started, what it is told first.

The code is in a checkout, or in a folder that pip installed it to. The process sees that before all
that this Python has, such as torch. It answers questions in lines of JSON, with bounded time and
memory. If it crashes, hangs or eats memory, it ends, and not the run: `Ended` says what happened,
and it can be started again.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from hicache.core.errors import CallerError, unknown
from invariants.fuzz import facts
from invariants.fuzz.facts import Facts

SOURCE_HELP = "the folder of the engine: a checkout, or what pip install --target made"
MOST_MEMORY = 12 << 30  # bytes of resident memory, above which a process is ended
OPEN_S = 180.0  # to import an engine
OURS = Path(__file__).resolve().parents[2]
_UNDER = ("", "python", "src")  # where the package of a checkout is
_LOOK_S = 0.5
_MOST_LINE = 256 << 20
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Engine:
    """package: the folder of its package. source: as the user named it."""

    facts: Facts
    release: str
    package: Path
    source: str | None = None

    @property
    def name(self) -> str:
        return f"{self.facts.name}=={self.release}"


def engine_of(name: str, source: str | None = None) -> Engine:
    """An engine, whose code is in `source`. Its release is that which pip installed there; a
    checkout counts as the newest that is known. Raises CallerError."""
    files = facts.engines()
    if name not in files:
        raise unknown("ENGINE", name, list(files))
    found = facts.read(files[name])
    newest, there = found.releases[-1], None
    if source is None and found.distribution:
        pinned = " ".join((f"{found.distribution}=={newest}", *found.needs))
        raise CallerError(
            f"--source: expected the folder of {name}, found none; make one with: "
            f"pip install --no-deps --target DIR {pinned}"
        )
    if source is not None and found.distribution:
        listed = metadata.distributions(name=found.distribution, path=[source])
        there = next((one.version for one in listed), None)
    for under in _UNDER:
        package = Path(source or OURS) / under / found.package
        if (package / "__init__.py").is_file():
            return Engine(found, there or newest, package.resolve(), source)
    raise CallerError(f"--source: expected a folder with the package {found.package}: {source}")


class Ended(Exception):
    """The process ended before it answered, or was ended. law: HANG or DEATH. said: the last
    lines of its error stream. seed: of the sequence that it played, or -1."""

    def __init__(self, law: str, text: str, said: str, seed: int) -> None:
        super().__init__(text)
        self.law, self.text, self.said, self.seed = law, text, said, seed

    def failure(self, at: int) -> Answer:
        """The failure that this is, after `at` entries."""
        last = self.said.splitlines()[-1:] or [""]
        text = f"{self.text}: {last[0]}".removesuffix(": ")
        return {"code": self.law, "kind": self.law, "text": text, "at": at, "lines": []}


class Session:
    """One process of an engine; it starts with the first question. own_check: whether the engine's
    own check is asked, too. opened: the answer to the first question."""

    def __init__(self, engine: Engine, own_check: bool = True) -> None:
        self.engine, self.own_check = engine, own_check
        self.opened: Answer = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        # has the engine's package alone
        self._first = tempfile.TemporaryDirectory(prefix="hicache-peer-")
        Path(self._first.name, engine.package.name).symlink_to(engine.package)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the process, for good."""
        self._end()
        self._errors.close()
        self._first.cleanup()

    def command(self, *arguments: str) -> list[str]:
        """A command that runs Python as the engine's process does."""
        return [sys.executable, "-P", *arguments]

    def variables(self) -> dict[str, str]:
        """The environment variables of the process."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        path = (self._first.name, str(OURS), str(self.engine.package.parent))
        kept |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"}
        return kept | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def start(self) -> None:
        """Starts the process, and has it import the engine. Raises CallerError if it cannot."""
        try:
            self._start()
        except Ended as ended:
            last = (ended.said.splitlines() or [ended.text])[-1]
            needs = ", ".join(("torch", *self.engine.facts.needs))
            raise CallerError(
                f"{self.engine.name}: expected that it can be imported, found: {last}; it needs "
                f"{needs}, and known are the releases {', '.join(self.engine.facts.releases)}"
            ) from None

    def ask(
        self,
        request: Answer,
        seconds: float,
        on: Callable[[Answer], None] | None = None,
        whole: bool = False,
    ) -> Answer:
        """Asks, and returns the last answer. seconds: for each line of the answer, or with `whole`
        for all. on: gets each line before the last. Raises Ended, and CallerError where the peer
        refuses the request."""
        if self._process is None:
            self._start()
        process, seed = self._process, -1
        due = time.monotonic() + seconds
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise self._ended("DEATH", "the process ended", seed) from None
        while True:
            by = due if whole else time.monotonic() + seconds
            answer: Answer = json.loads(self._line(process, by, seed))
            if answer.get("done"):
                if "refused" in answer:
                    raise CallerError(answer["refused"])
                return answer
            seed = answer.get("seed", seed)
            if on is not None:
                on(answer)

    def _start(self) -> None:
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            self.command("-m", "invariants.fuzz.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=self.variables(),
            start_new_session=True,
        )
        engine = self.engine
        request = {
            "do": "open",
            "peer": engine.facts.name.replace("-", "_"),
            "release": engine.release,
            "package": str(engine.package),
            "stubs": engine.facts.stubs,
            "bare": engine.facts.bare,
            "own_check": self.own_check,
        }
        self.opened = self.ask(request, OPEN_S)

    def _line(self, process: subprocess.Popen[bytes], due: float, seed: int) -> bytes:
        """The next line of the answer. Raises Ended."""
        assert process.stdout is not None
        while b"\n" not in self._buffer:
            if (size := _resident(process.pid)) > MOST_MEMORY:
                text = f"it takes {size / 1e9:.0f} GB of memory, {MOST_MEMORY / 1e9:.0f} may be"
                raise self._ended("DEATH", text, seed)
            if time.monotonic() > due:
                raise self._ended("HANG", "it does not answer in time", seed)
            if not select.select([process.stdout], [], [], _LOOK_S)[0]:
                continue
            read = os.read(process.stdout.fileno(), 1 << 20)
            if not read:
                code = process.wait()
                how = f"the process ended with signal {-code}" if code < 0 else ""
                raise self._ended("DEATH", how or f"it ended with code {code}", seed)
            self._buffer += read
            if len(self._buffer) > _MOST_LINE:
                raise self._ended("DEATH", "its answer is too long", seed)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _end(self) -> None:
        process, self._process, self._buffer = self._process, None, b""
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(OSError), process:  # closes its streams, and waits for it
                pass

    def _ended(self, law: str, text: str, seed: int) -> Ended:
        self._end()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 4096))
        said = self._errors.read().decode(errors="replace").strip()
        return Ended(law, text, said, seed)


def _resident(process: int) -> int:
    """Bytes of memory that a process has, with its children's left out."""
    try:
        text = Path(f"/proc/{process}/statm").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(text.split()[1]) * resource.getpagesize()


def script_fails(session: Session, script: Path, seconds: float) -> str:
    """Runs a script as the engine runs. Returns what it prints if it fails; empty if it does not
    fail."""
    engine = session.engine
    run = (
        "import runpy, sys\n"
        "from invariants.fuzz.stubs import Stubs\n"
        f"Stubs({engine.facts.stubs}, {engine.facts.bare}, {engine.release!r}).install()\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')\n"
    )
    command, variables = session.command("-c", run, str(script)), session.variables()
    try:
        done = subprocess.run(command, env=variables, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"no end in {seconds:.0f} s"
    return done.stderr.decode(errors="replace").strip() if done.returncode else ""
