"""The first code of the `hicache` command: it makes Ctrl-C quiet, then loads everything else.

Imports nothing of the project, since a Ctrl-C during an import would end in a traceback. Does not
know what the command does; see cli.
"""

from __future__ import annotations

import os
import signal
from importlib import import_module
from types import FrameType

_INTERRUPTED = 130


def main() -> int:
    """Runs the command; returns its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored (nohup)
        signal.signal(signal.SIGINT, _end)
    code: int = import_module("traces.cli").main()
    return code


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"hicache: interrupted\n")
    os._exit(_INTERRUPTED)
