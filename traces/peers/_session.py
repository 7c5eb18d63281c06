"""The process of a peer, from outside: how it is started, and what it is told first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hicache.core.errors import CallerError
from traces.terminal.asked import Answer, Asked, Ended

from ._borrowed import child_path
from ._folders import Environment

__all__ = ["Answer", "Ended", "Session", "script_fails"]

OPEN_S = 180.0  # to import an engine


class Session(Asked):
    """One process of a peer. own_check: whether the engine's own check is asked, too."""

    def __init__(
        self, environment: Environment, folder: str | None = None, own_check: bool = True
    ) -> None:
        super().__init__()
        self.own_check = own_check
        self.environment = environment
        self.path = child_path(environment, folder)

    def program(self) -> list[str]:
        """See `Asked`."""
        return self.command("-m", "invariants.peers.child")

    def command(self, *arguments: str) -> list[str]:
        """A command that runs Python as the peer does."""
        return [sys.executable, "-S", "-P", *arguments]

    def variables(self) -> dict[str, str]:
        """The environment variables of the peer's process."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        return kept | {
            "PYTHONPATH": os.pathsep.join(self.path),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }

    def start(self) -> None:
        """Starts the process, and has it import the engine. Raises CallerError if it cannot."""
        try:
            self._start()
        except Ended as ended:
            last = (ended.said.splitlines() or [ended.text])[-1]
            raise CallerError(
                f"{self.environment.name}: expected that it can be imported, found: {last}; fetch "
                "it again, or name a release that its peer knows"
            ) from None

    def opening(self) -> tuple[Answer, float]:
        """See `Asked`."""
        facts, release = self.environment.facts, self.environment.release
        request = {
            "do": "open",
            "peer": facts.name.replace("-", "_"),
            "release": release,
            "roots": self._roots(),
            "stubs": facts.stubs(release),
            "bare": facts.bare(release),
            "own_check": self.own_check,
        }
        return request, OPEN_S

    def _roots(self) -> list[str]:
        """The real folders of the engine's packages."""
        environment = self.environment
        if environment.folder is None or environment.source is not None:
            package = environment.facts.package
            places = [Path(folder) / package for folder in self.path]
            return [str(one.resolve().parent) for one in places if one.exists()][:1]
        return [str((environment.folder / "site").resolve())]


def script_fails(session: Session, script: Path, seconds: float) -> str:
    """Runs a script where the peer runs, and returns what it prints if it fails; empty if it does
    not fail."""
    facts, release = session.environment.facts, session.environment.release
    run = (
        "import runpy, sys\n"
        "from invariants.peers.stubs import Stubs\n"
        f"Stubs({facts.stubs(release)!r}, {facts.bare(release)!r}, {release!r}).install()\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')\n"
    )
    try:
        done = subprocess.run(
            session.command("-c", run, str(script)),
            env=session.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return f"no end in {seconds:.0f} s"
    if not done.returncode:
        return ""
    return done.stderr.decode(errors="replace").strip() or f"code {done.returncode}"
