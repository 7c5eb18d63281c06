"""The commands that the README, the docs and `--help` show, for tests that run them.

A *shown command* is a line of a block that begins with `hicache` (after `$`, perhaps), with its
continuation lines. What a console block prints after it is kept, to know the exit code.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from traces.cli import _EXAMPLES

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```\w*\n(.*?)^```|((?:^(?: {4}|\t).*\n)+)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(hicache [^`\n]+)`")


@dataclass(frozen=True)
class Shown:
    """One command. code: the exit code that the page shows or means."""

    words: tuple[str, ...]
    code: int = 0
    pipe: tuple[str, ...] = ()  # the command that reads what this one prints

    def __str__(self) -> str:
        return " | ".join(shlex.join(part) for part in (self.words, self.pipe) if part)


def pages() -> dict[str, str]:
    """Every text that shows commands, by name. The help of the command is one of them."""
    texts = {path.stem.lower(): path.read_text() for path in PAGES}
    return texts | {"help": f"```\n{_EXAMPLES}```\n"}


def commands(text: str) -> list[Shown]:
    """The commands of a page's blocks, in order."""
    result = []
    for fenced, indented in _BLOCK.findall(text):
        lines = re.sub(r"\\\n\s*", " ", fenced or indented).splitlines()
        for number, line in enumerate(lines):
            command = line.strip().removeprefix("$ ")
            if command.startswith("hicache "):
                result.append(_command(command, _code("\n".join(lines[number + 1 :]))))
    return result


def spans(text: str) -> list[Shown]:
    """The commands in the running text that have arguments."""
    written = map(shlex.split, _SPAN.findall(text))
    return [Shown(tuple(words)) for words in written if len(words) > 2]


def _command(line: str, code: int) -> Shown:
    """The command of a line, without a comment or, in the help, a remark after three spaces."""
    plain = re.split(r"\s+#|\s{3,}", line)[0]
    parts = [tuple(shlex.split(part)) for part in plain.split(" | ")]
    return Shown(parts[0], code, *parts[1:2])


def _code(after: str) -> int:
    """The exit code that a console block shows after a command, up to the next one."""
    own = re.split(r"^\s*(?:\$ )?hicache ", after, flags=re.MULTILINE)[0]
    if match := re.search(r"\[exit code (\d+)\]", own):
        return int(match[1])
    return 2 if re.search(r"^\s*hicache: (?!note: )", own, re.MULTILINE) else 0
