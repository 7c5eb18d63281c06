"""The two standard streams: escaped text for people, and what to do when one is closed, full, no
longer read, or limited in its encoding.

Does not write files; see traces/terminal/output. Does not say what is escaped; see text.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from hicache.core.errors import CallerError

from .text import one_line, unforged, visible


class Escaped:
    """A standard stream for people: whatever is printed to it, unsafe characters are escaped.

    raw: the stream behind it, for documents and for the colours that rich makes itself.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw(stream: TextIO) -> TextIO:
    """The stream without escapes, for a document or for a writer that escapes by itself."""
    return stream.raw if isinstance(stream, Escaped) else stream


@contextmanager
def escaped_std_streams() -> Iterator[None]:
    """Everything that the block prints to a standard stream is escaped."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, Escaped(raw(stream))) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def check_current_folder() -> None:
    """Raises CallerError if the current directory is gone; relative paths need it."""
    try:
        os.getcwd()
    except OSError as error:
        raise CallerError(
            f"expected to run in a folder that is there, found: {error.strerror}; go to another"
        ) from None


def harden_std_streams() -> None:
    """Replaces a closed standard stream (>&-) by one that discards its text.

    Characters that the encoding lacks (LC_ALL=C) are printed as escapes.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Discards the output of the block once its reader is gone (head).

    The command goes on: it writes its files and returns its usual exit code.
    """
    try:
        yield
        flush()
    except BrokenPipeError:
        silence_std_streams()


def flush() -> None:
    """Writes out both standard streams. Raises OSError if one cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def silence_std_streams() -> None:
    """Sends a standard stream that can no longer be written to the null device.

    Without this, Python reports an error when it flushes the stream at exit.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null_device = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null_device, stream.fileno())
            os.close(null_device)


def on_one_screen(stream: TextIO) -> bool:
    """Whether a person sees this stream and standard error in one place."""
    return stream is sys.stderr or (stream.isatty() and sys.stderr.isatty())


def print_error(text: str) -> None:
    """Prints one error line after all other output; a standard error that is gone is ignored."""
    print_failure(one_line(text))


def print_failure(text: str) -> None:
    """Prints a failure of several lines as `print_error` prints one."""
    silence_std_streams()
    with suppress(OSError):
        print(f"hicache: {unforged(text)}", file=sys.stderr)
    silence_std_streams()
