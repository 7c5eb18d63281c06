"""A process that answers questions in lines of JSON, with bounded time and memory.

A process that crashes, hangs or eats memory ends, and not the run: `Ended` says what happened, and
it can be started again.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from hicache.core.errors import CallerError

MOST_MEMORY = 12 << 30  # bytes of resident memory, above which a process is ended
_LOOK_S = 0.5
_MOST_LINE = 256 << 20
Answer = dict[str, Any]


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


class Asked(ABC):
    """One process. It starts with the first question."""

    def __init__(self) -> None:
        self.opened: Answer = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()

    @abstractmethod
    def program(self) -> Sequence[str]:
        """The command that starts the process."""

    @abstractmethod
    def variables(self) -> dict[str, str]:
        """Its environment variables."""

    @abstractmethod
    def opening(self) -> tuple[Answer, float]:
        """The first question, and the seconds that its answer may take. The answer is `opened`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, for good."""
        self._end()
        self._errors.close()

    def _end(self) -> None:
        process, self._process, self._buffer = self._process, None, b""
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(OSError), process:  # closes its streams, and waits for it
                pass

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
            answer = json.loads(self._line(due if whole else time.monotonic() + seconds, seed))
            if answer.get("done"):
                if "refused" in answer:
                    raise CallerError(answer["refused"])
                return answer  # type: ignore[no-any-return]
            seed = answer.get("seed", seed)
            if on is not None:
                on(answer)

    def _start(self) -> None:
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            self.program(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=self.variables(),
            start_new_session=True,
        )
        self.opened = self.ask(*self.opening())

    def _line(self, due: float, seed: int) -> bytes:
        """The next line of the answer. Raises Ended."""
        process = self._process
        assert process is not None
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
