"""The process in which an engine, or a cache of the user, runs: where its code is, how the process
is started, what it is told first.

An engine is in a checkout, or in a folder that pip installed it to. The process sees that before
all that this Python has, such as torch. It answers requests in lines of JSON, with bounded time and
memory. If it crashes, hangs or eats memory, it ends, and not the run: `Ended` says what happened,
and it can be started again.
"""

import ast
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from hicache.core.errors import CallerError, unknown

OPEN_S = 180.0  # to import an engine
OURS = Path(__file__).resolve().parents[2]
TARGETS = OURS / "invariants/fuzz/targets"
_UNDER = ("", "python", "src")  # where the package of a checkout is
_LOOK_S = 0.5
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\w+)')  # of faulthandler
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Engine:
    """name: of its file in invariants/fuzz/targets, whose constants the next five are, or of the
    user's class. package: the folder of its package, or of the user's file. source: as the user
    named it. loads: the user's file and class."""

    name: str
    package: Path
    release: str = ""
    releases: tuple[str, ...] = ("",)
    needs: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    source: str | None = None
    loads: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.name}=={self.release}" if self.release else self.name


def names() -> list[str]:
    return sorted(path.stem for path in TARGETS.glob("*.py") if path.stem[0] != "_")


def constants(name: str) -> dict[str, Any]:
    """The literal constants at the head of an engine's file, which is not imported: that imports
    the engine, which only its own process may do, after the stubs are in place."""
    result: dict[str, Any] = {}
    for node in ast.parse((TARGETS / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with suppress(ValueError):  # not a literal, so none of those that are read
                result[node.targets[0].id] = ast.literal_eval(node.value)
    return result


def engine_of(name: str, source: str | None = None) -> Engine:
    """An engine, whose code is in `source`, or a cache of the user by path.py:Class. The release is
    that which pip installed there; a checkout counts as the newest that is known. Raises
    CallerError."""
    path, colon, kind = name.rpartition(":")
    if colon and path.endswith(".py"):
        file = Path(path).resolve()
        if source is not None:
            raise CallerError(f"--source: expected none for {name}, whose file names its code")
        if not file.is_file():
            raise CallerError(f"TARGET: expected path.py:Class of a file, found no file {path}")
        return Engine(kind, file.parent, loads=(str(file), kind))
    if name not in names():
        raise unknown("TARGET", name, ["hicache", *names(), "path.py:Class"])
    message = constants(name)
    releases, needs = message["RELEASES"], message.get("NEEDS", ())
    if source is None:
        pinned = " ".join((f"{message['DISTRIBUTION']}=={releases[-1]}", *needs))
        raise CallerError(
            f"--source: expected the folder of {name}, found none; make one with: "
            f"pip install --no-deps --target DIR {pinned}"
        )
    listed = metadata.distributions(name=message["DISTRIBUTION"], path=[source])
    release = next((each.version for each in listed), releases[-1])
    if release not in releases:
        known = ", ".join(releases)
        raise CallerError(f"--source: expected {name} {known}, or a checkout, found {release}")
    for under in _UNDER:
        package = Path(source) / under / message.get("PACKAGE", name)
        if (package / "__init__.py").is_file():
            replaced = tuple(message.get("STUBS", "").split()), message.get("BARE", ())
            return Engine(name, package.resolve(), release, releases, needs, *replaced, source)
    raise CallerError(f"--source: expected a folder with the package {package.name}: {source}")


class Ended(Exception):
    """The process ended before it answered, or was ended. law: HANG or DEATH."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(text)
        self.law, self.text = law, text

    def failure(self, at: int) -> Answer:
        """The failure that this is, after `at` entries."""
        return {"code": self.law, "kind": self.law, "text": self.text, "at": at, "lines": []}


class Session:
    """One process of an engine; it starts with the first request. opened: what it then said."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.opened: Answer = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the exit
        # has the engine's package alone
        self._first = tempfile.TemporaryDirectory(prefix="hicache-engine-")
        if not engine.loads:
            Path(self._first.name, engine.package.name).symlink_to(engine.package)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._errors.close()
        self._first.cleanup()

    def start(self) -> None:
        """Starts the process, and has it import the engine. Raises CallerError if it cannot."""
        try:
            self._start()
        except Ended as ended:
            needs = f"; it needs torch, {', '.join(self.engine.needs)}" * bool(self.engine.release)
            raise CallerError(
                f"{self.engine.title}: expected that it can be imported, found: {ended}{needs}"
            ) from None

    def ask(self, request: Answer, seconds: float) -> Answer:
        """The last line of the answer."""
        return [*self.answers(request, seconds)][-1]

    def answers(self, request: Answer, seconds: float, full: bool = False) -> Iterator[Answer]:
        """The lines of the answer. seconds: for each, or with `full` for all. Raises Ended, and
        CallerError where the process refuses the request."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        due = time.monotonic() + seconds
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise self._ended("DEATH", "the process ended") from None
        done = False
        while not done:
            by = due if full else time.monotonic() + seconds
            answer: Answer = json.loads(self._line(process, by))
            if "refused" in answer:
                raise CallerError(answer["refused"])
            done = "done" in answer
            yield answer

    def script_fails(self, text: str, seconds: float) -> str:
        """Runs a script as the engine runs. Returns what it prints if it fails, else nothing."""
        script = Path(self._first.name) / "script.py"
        script.write_text(text, "utf-8")
        stubs = f"{self.engine.stubs}, {self.engine.bare}, {self.engine.release!r}"
        run = (
            "import runpy, sys\nfrom invariants.fuzz.stubs import Stubs\n"
            f"Stubs({stubs}).install()\nrunpy.run_path(sys.argv[1], run_name='__main__')\n"
        )
        command = [sys.executable, "-P", "-c", run, str(script)]
        how: dict[str, Any] = {"env": self._variables(), "capture_output": True}
        try:
            done = subprocess.run(command, timeout=seconds, **how)
        except subprocess.TimeoutExpired:
            return f"no end in {seconds:.0f} s"
        return done.stderr.decode(errors="replace").strip() if done.returncode else ""

    def _variables(self) -> dict[str, str]:
        """The environment variables of the process."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        engine = self.engine.package if self.engine.loads else self.engine.package.parent
        path = (self._first.name, str(OURS), str(engine))
        kept |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"}
        return kept | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def _start(self) -> None:
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "invariants.fuzz.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=self._variables(),
            start_new_session=True,
        )
        keys = ("name", "release", "stubs", "bare", "loads")
        request = {key: getattr(self.engine, key) for key in keys}
        request |= {"do": "open", "package": str(self.engine.package)}
        self.opened = self.ask(request, OPEN_S)

    def _line(self, process: subprocess.Popen[bytes], due: float) -> bytes:
        """The next line of the answer. Raises Ended."""
        assert process.stdout is not None
        while b"\n" not in self._buffer:
            if time.monotonic() > due:
                raise self._ended("HANG", "it does not answer in time" + self._where(process.pid))
            if select.select([process.stdout], [], [], _LOOK_S)[0]:
                read = os.read(process.stdout.fileno(), 1 << 20)
                if not read:
                    code = process.wait()
                    how = f"signal {-code}" if code < 0 else f"code {code}"
                    raise self._ended(
                        "DEATH", f"the process ended with {how}: {self._log_lines()[-1]}"
                    )
                self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _where(self, process: int) -> str:
        """The innermost line of the engine at which the process is."""
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGUSR1)  # see the child
        time.sleep(_LOOK_S)
        for file, line, function in _FRAME.findall("\n".join(self._log_lines())):
            if file.startswith(f"{self.engine.package}{os.sep}"):
                return f", and is in {function} ({file.rpartition('/')[2]}:{line})"
        return ""

    def _log_lines(self) -> list[str]:
        """The last lines of the error stream."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 4096))
        return self._errors.read().decode(errors="replace").strip().splitlines() or [""]

    def _end(self) -> None:
        process, self._process, self._buffer = self._process, None, b""
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(OSError), process:  # closes its streams, and waits for it
                pass

    def _ended(self, law: str, text: str) -> Ended:
        self._end()
        return Ended(law, text)
