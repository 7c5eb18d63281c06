"""The process in which an engine runs: where its code is, how it is started, what it is told first.

The code is in a checkout, or in a folder that pip installed it to. The process sees that before all
that this Python has, such as torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from hicache.core.errors import CallerError, unknown
from invariants.peers import facts
from invariants.peers.facts import Facts

from ..terminal.asked import Answer, Asked, Ended

SOURCE_HELP = "the folder of the engine: a checkout, or what pip install --target made"
OPEN_S = 180.0  # to import an engine
OURS = Path(__file__).resolve().parents[2]
_UNDER = ("", "python", "src")  # where the package of a checkout is


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


class Session(Asked):
    """One process of an engine. own_check: whether the engine's own check is asked, too."""

    def __init__(self, engine: Engine, own_check: bool = True) -> None:
        super().__init__()
        self.engine, self.own_check = engine, own_check
        self._first = TemporaryDirectory(prefix="hicache-peer-")  # has the engine's package alone
        Path(self._first.name, engine.package.name).symlink_to(engine.package)

    def close(self) -> None:
        super().close()
        self._first.cleanup()

    def program(self) -> list[str]:
        return self.command("-m", "invariants.peers.child")

    def command(self, *arguments: str) -> list[str]:
        """A command that runs Python as the engine's process does."""
        return [sys.executable, "-P", *arguments]

    def variables(self) -> dict[str, str]:
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

    def opening(self) -> tuple[Answer, float]:
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
        return request, OPEN_S


def script_fails(session: Session, script: Path, seconds: float) -> str:
    """Runs a script as the engine runs. Returns what it prints if it fails; empty if it does not
    fail."""
    engine = session.engine
    run = (
        "import runpy, sys\n"
        "from invariants.peers.stubs import Stubs\n"
        f"Stubs({engine.facts.stubs}, {engine.facts.bare}, {engine.release!r}).install()\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')\n"
    )
    command, variables = session.command("-c", run, str(script)), session.variables()
    try:
        done = subprocess.run(command, env=variables, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"no end in {seconds:.0f} s"
    return done.stderr.decode(errors="replace").strip() if done.returncode else ""
