"""Makes a script of an engine's calls short: leaves out every line without which it fails alike.

The script is run here, in the peer's process, where its engine is imported already. It has nothing
but what the recorder wrote: calls with literal arguments, and definitions of our own files.
"""

from __future__ import annotations

import signal
import textwrap
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from invariants.fuzz.script import Recorder
from invariants.fuzz.target import Broken

MOST_RUNS = 600
RUN_S = 5.0  # for one run, which takes milliseconds
Where = Callable[[str], str]


def shorten(recorder: Recorder, sources: Sequence[Path], where: Where) -> None:
    """Removes lines of the recorder, from the last, as long as the script fails in the same way.
    where: as of Player."""
    head, _, _ = recorder.script("", sources).rpartition("\n\ndef test()")
    space: dict[str, object] = {"__name__": "script"}
    exec(compile(head, "<script>", "exec"), space)
    runs = 0

    def failure(lines: Sequence[str]) -> str:
        nonlocal runs
        runs += 1
        body = textwrap.indent("\n".join(lines) or "pass", "    ")
        scope = dict(space)
        signal.setitimer(signal.ITIMER_REAL, RUN_S)
        try:
            exec(compile(f"def test():\n{body}\ntest()\n", "<script>", "exec"), scope)
        except _Late:
            return ""
        except Exception as error:
            return _kind(error, where)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return ""

    before = signal.signal(signal.SIGALRM, _late)
    lines = list(recorder.lines)
    wanted = failure(lines)
    size = len(lines) // 2 if wanted else 0
    while size:
        end = len(lines)
        while end > 0 and runs < MOST_RUNS:
            start = max(0, end - size)
            fewer = lines[:start] + lines[end:]
            if failure(fewer) == wanted:
                lines = fewer
            end = start
        size //= 2
    signal.signal(signal.SIGALRM, before)
    recorder.lines = lines


class _Late(BaseException):
    """Without some line, the script does not end."""


def _late(number: int, frame: object) -> None:
    raise _Late


def _kind(error: Exception, where: Where) -> str:
    """Equal for scripts that fail alike: a law, or an error with the engine's line of it."""
    law = getattr(error, "kind", None)
    if isinstance(error, Broken) or (isinstance(error, AssertionError) and law):
        return f"law {law}"
    frames = traceback.walk_tb(error.__traceback__)
    engine = [
        (frame.f_code.co_name, line) for frame, line in frames if where(frame.f_code.co_filename)
    ]
    return f"{type(error).__name__} {engine[-1]}" if engine else ""
