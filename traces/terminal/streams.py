"""The two standard streams: escaped text for people, and what to do when one is closed, full, no
longer read, or limited in its encoding.

Names in traces, models, profiles and sequences are untrusted: printed raw, an escape sequence
controls the terminal, a mark of writing direction reorders a line, a newline forges one. What goes
to the terminal is escaped here; documents (JSON, sequences, traces) keep their text as it is.
"""

import io
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

_MOST_SHOWN = 1000  # characters of an error line
_MOST_NAME = 160  # characters of a name within a report
# Everything below 0x20 but the newline, 0x7f to 0x9f, marks of direction, characters without width,
# separators of lines, and lone surrogates.
_UNSAFE = re.compile(
    "[\0-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_OWN_LINE = re.compile("^(?=hicache:)", re.MULTILINE)


def visible(text: str) -> str:
    r"""The text with every unsafe character as an escape such as \x1b. Newlines stay."""
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


def one_line(text: str, most: int = _MOST_SHOWN) -> str:
    """The text on one line, escaped. Of what is too long the middle is left out."""
    return _cut(visible(_cut(text, 4 * most)).replace("\n", "\\n"), most)


def name(text: str) -> str:
    """A name for a report: on one line, escaped, and short."""
    return one_line(text, _MOST_NAME)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail]}[...]{text[-tail:]}"


def unforged(text: str) -> str:
    """The text without a line that begins as the lines of the command itself do."""
    return _OWN_LINE.sub("    ", text)


def command_line(words: Iterable[str]) -> str:
    """The words as one line for a shell. A word with unsafe characters is in bash's $'...'."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if "\n" not in word and visible(word) == word:
        return shlex.quote(word)
    plain = word.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    return f"$'{_UNSAFE.sub(_bash_escape, plain)}'"


def _bash_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # stands for a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


class _Escaped:
    """A standard stream for people: whatever is printed to it, unsafe characters are escaped. Once
    its reader is gone (head), it is discarded, and the command goes on. raw: the stream behind it.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        with reader_may_leave():
            self.raw.write(visible(text))
        return len(text)

    def flush(self) -> None:
        with reader_may_leave():
            self.raw.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Ends the block when nobody reads a standard stream any more, and silences that."""
    try:
        yield
    except BrokenPipeError:
        silence_std_streams()


def raw(stream: TextIO) -> TextIO:
    """The stream without escapes, for a document or for the colours that rich makes."""
    return stream.raw if isinstance(stream, _Escaped) else stream


@contextmanager
def hardened_std_streams() -> Iterator[None]:
    """Everything that the block prints to a standard stream is escaped.

    A closed stream (>&-) is replaced by one that discards its text. Characters that the encoding
    lacks (LC_ALL=C) are printed as escapes.
    """
    before = sys.stdout, sys.stderr
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, cast(TextIO, _Escaped(raw(stream))))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def flush() -> None:
    """Writes out both standard streams. Raises OSError if one cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def silence_std_streams() -> None:
    """Sends a standard stream that can no longer be written to the null device, or Python reports
    an error when it flushes the stream at exit."""
    for stream in map(raw, (sys.stdout, sys.stderr)):
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
