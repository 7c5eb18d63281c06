"""The two standard streams: closed, left by their reader, full, or short of characters.

Must not live here: files (output), or what is said.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hicache.core.errors import CallerError


def check_folder_is_there() -> None:
    """Every path is read from where the command runs. Raises CallerError."""
    try:
        os.getcwd()
    except OSError as error:
        raise CallerError(
            f"expected to run in a folder that is there, found: {error.strerror}; go to another"
        ) from None


def harden_std_streams() -> None:
    """A standard stream that was closed (>&-) is one that nobody reads; one whose encoding lacks a
    character (LC_ALL=C) shows it by its number."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """What is said in the block is said to nobody where the reader went away (head): the work goes
    on, its files are written, and the exit code is that of what was found."""
    try:
        yield
        flush()
    except BrokenPipeError:
        silence_std_streams()


def flush() -> None:
    """Nothing is left to be said. Raises OSError where it cannot be."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def silence_std_streams() -> None:
    """Whichever of the two standard streams takes no more gets nothing from now on, not even at
    the end of the process."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def complain(text: str) -> None:
    """The last words of a command, behind what it has said; to nobody where nobody takes them."""
    silence_std_streams()
    with suppress(OSError):
        print(f"hicache: {text}", file=sys.stderr)
    silence_std_streams()
