"""The first code of the `hicache` command: it makes Ctrl-C quiet, then loads everything else.

Until the command runs, Ctrl-C ends the process at once. An exception instead would leave a
traceback wherever an import is. Imports nothing that takes time.
"""

import _signal  # type: ignore[import-not-found]  # `signal` takes milliseconds to load
import gc
import os
import sys

_INTERRUPTED = 130
_CHOICE = "HICACHE_BUILD"
_COMPILED = ("replay", "size", "sweep")  # the others patch or read the source


def _end(number: int, frame: object) -> None:
    os.write(2, b"hicache: interrupted\n")
    os._exit(_INTERRUPTED)


if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else ignored, as by nohup
    _signal.signal(_signal.SIGINT, _end)

from importlib import import_module  # noqa: E402


def _choose_build(command: str) -> None:
    """Sets HICACHE_BUILD for this process and its workers, and uses the compiled modules."""
    text = os.environ.get(_CHOICE, "")
    if text == "pure" or command not in _COMPILED:
        if text == "compiled":
            os.environ[_CHOICE] = "pure"
            os.write(2, f"hicache: {command} runs the pure source\n".encode())
        return
    finder = import_module("hicache.compiled.finder")
    if finder.install():
        os.environ[_CHOICE] = "compiled"
    elif (finder.FOLDER / finder.MANIFEST).exists() or text:
        os.environ[_CHOICE] = "pure"
        os.write(2, f"hicache: running the pure source: {finder.AGAIN}\n".encode())


def main() -> int:
    """Runs the command; returns its exit code."""
    _choose_build(sys.argv[1] if len(sys.argv) > 1 else "")
    gc.disable()  # until all is loaded (traces.cli)
    code: int = import_module("traces.cli").main()
    return code
