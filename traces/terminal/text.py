"""Makes text that may come from a file, a file's name or an option safe to print.

Names in traces, models, profiles and tapes are untrusted: printed raw, an escape sequence controls
the terminal, a mark of writing direction reorders a line, a newline forges one. What goes to the
terminal is escaped here; documents (JSON, tapes, traces) keep their text as it is. Does not print;
see streams, and tables for what rich prints.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

MOST_SHOWN = 1000  # characters of an error line
MOST_WORD = 250  # of them without a space: a path
MOST_NAME = 160  # characters of a name within a report
# Everything below 0x20 but the newline, 0x7f to 0x9f, marks of direction, characters without width,
# separators of lines, and lone surrogates.
_UNSAFE = re.compile(
    "[\0-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_OWN_LINE = re.compile("^(?=hicache:)", re.MULTILINE)
_LONG_WORD = re.compile(rf"\S{{{MOST_WORD + 1},}}")


def visible(text: str) -> str:
    r"""The text with every unsafe character as an escape such as \x1b. Newlines stay."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str, most: int = MOST_SHOWN) -> str:
    """The text on one line, escaped. Of what is too long, a word or all of it, the middle is left
    out."""
    line = visible(_cut(text, 4 * most)).replace("\n", "\\n")
    return _cut(_LONG_WORD.sub(lambda match: _cut(match[0], MOST_WORD), line), most)


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
        code -= 0xDC00
        return f"\\x{code:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail]}[...]{text[-tail:]}"


def name(text: str) -> str:
    """A name for a report: on one line, escaped, and short."""
    return one_line(text, MOST_NAME)


def _escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
