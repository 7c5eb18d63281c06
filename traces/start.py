"""The first code of the `hicache` command: it makes Ctrl-C quiet, then loads everything else.

Until the command runs, Ctrl-C ends the process at once. An exception instead would leave a
traceback wherever an import is, or be taken for an error by a library that is being loaded.
Imports nothing that takes time. Does not know what the command does; see cli.
"""

import _signal  # type: ignore[import-not-found]  # `signal` takes milliseconds to load
import os

_INTERRUPTED = 130


def _end(number: int, frame: object) -> None:
    os.write(2, b"hicache: interrupted\n")
    os._exit(_INTERRUPTED)


if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else ignored, as by nohup
    _signal.signal(_signal.SIGINT, _end)

from importlib import import_module  # noqa: E402


def main() -> int:
    """Runs the command; returns its exit code."""
    code: int = import_module("traces.cli").main()
    return code
