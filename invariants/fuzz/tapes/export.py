"""Exports a shrunken tape as a pytest file with literal operations and the failure.

The test asserts that the core plays the tape without failure. It fails until the bug is fixed (or
while it is planted) and remains as a regression test. The layout is that of `ruff format`. Does not
write files or run the test; the command does.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import MISSING, fields, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from hicache.core.components.base import ComponentSettings
from hicache.core.config import Config

from ..executors import REPLIES
from ..play import Failure
from .tape import Act, Entry, Tape, dumps

WIDTH = 100
MOST_LINES = 24


def file_name(tape: Tape, failure: Failure) -> str:
    """Returns test_<kind>_<hash8>.py. The hash depends only on what is played."""
    kind = re.sub(r"[^a-z0-9]+", "_", failure.kind.lower()).strip("_") or "failure"
    played = dumps(replace(tape, seed=0, notes={}))
    return f"test_{kind}_{blake2b(played.encode(), digest_size=4).hexdigest()}.py"


def pytest_file(tape: Tape, failure: Failure, plant: str = "") -> str:
    """Returns the text of the file. plant: the planted bug that the failure needs, or ""."""
    acts = any(entry.acts for entry in tape.entries)
    parts = ", ".join(sorted(one.component for one in tape.config.settings))
    components = f"from hicache.core.components import {parts}\n" if parts else ""
    names = ["Act"] * acts + ["Entry"] * bool(tape.entries) + ["Tape"]
    return (
        f'"""{_story(tape, failure, plant)}"""\n\n'
        "from __future__ import annotations\n\n"
        f"{components}from hicache.core.config import Config\n"
        "from invariants.fuzz.ops.base import load\n"
        "from invariants.fuzz.play import replay\n"
        f"from invariants.fuzz.tapes.tape import {', '.join(names)}\n\n"
        f"TAPE = {_laid(_of_tape(tape), 0, len('TAPE = '))}\n\n\n"
        "def test_the_core_plays_it_clean() -> None:\n"
        "    failure = replay(TAPE, load(), name=__file__).failure\n"
        "    if failure is not None:  # an assert would not run under python -O\n"
        "        raise AssertionError(failure.text)\n"
    )


def _story(tape: Tape, failure: Failure, plant: str) -> str:
    count = len(tape.entries)
    size = f"{count} operation{'s' * (count != 1)}"
    where = f"With the planted bug {plant}" if plant else "Before it was mended"
    commit = tape.notes.get("commit", "")
    lines = [f"{failure.kind} (exit code {failure.code}), shrunk to {size}.", ""]
    lines += [f"{where}{f', at commit {commit}' if commit else ''}:", ""]
    for line in _told(failure.text)[:MOST_LINES]:
        indent = "    " + " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(
            line.strip(), WIDTH, initial_indent=indent, subsequent_indent=indent + "    "
        )
    text = "\n".join(line.rstrip() for line in lines)
    plain = "".join(char if " " <= char <= "~" or char == "\n" else "?" for char in text)
    return plain.replace("\\", "\\\\").replace('"""', "'''") + "\n"


def _told(text: str) -> list[str]:
    """Returns the lines of the failure without frames, command and folders."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback"):
        lines = lines[-1:]
    kept = [line for line in lines if not line.startswith("replay:")]
    return [re.sub(r"(?<![\w.])/(?:[\w.-]+/)+", "", line) for line in kept]


# -- layout


class _Group(NamedTuple):
    """Parts in brackets. single: a tuple of one, which keeps its comma."""

    start: str
    parts: tuple[_Part, ...]
    end: str
    single: bool = False


class _Named(NamedTuple):
    name: str
    value: _Part


_Part = str | _Group | _Named


def _of_tape(tape: Tape) -> _Group:
    parts: list[_Part] = [
        _Named("config=", _of_config(tape.config)),
        _Named("entries=", _sequence(tuple(map(_of_entry, tape.entries)))),
    ]
    if tape.seed:
        parts.append(f"seed={tape.seed}")
    if tape.pairs:
        parts.append("pairs=True")
    if tape.order != "time":
        parts.append(f"order={_word(tape.order)}")
    if tape.executor != REPLIES:
        parts.append(f"executor={_word(tape.executor)}")
    if tape.ranks != 1:
        parts.append(f"ranks={tape.ranks}")
    return _Group("Tape(", tuple(parts), ")")


def _of_config(config: Config) -> _Group:
    """The settings that differ from the defaults."""
    unusual = [
        one.name
        for one in fields(Config)
        if one.default is MISSING or getattr(config, one.name) != one.default
    ]
    parts = tuple(_Named(f"{name}=", _literal(getattr(config, name))) for name in unusual)
    return _Group("Config(", parts, ")")


def _of_entry(entry: Entry) -> _Group:
    parts: list[_Part] = [_word(entry.op), _literal(entry.args)]
    if entry.gap != 1:
        parts.append(f"gap={entry.gap}")
    if not entry.poll:
        parts.append("poll=False")
    if entry.acts:
        parts.append(_Named("acts=", _sequence(tuple(map(_of_act, entry.acts)))))
    return _Group("Entry(", tuple(parts), ")")


def _of_act(act: Act) -> str:
    fault = f", {_word(act.fault)}" if act.fault else ""
    return f"Act({act.delay}, {act.tie}{fault})"


def _literal(value: Any) -> _Part:
    if isinstance(value, str):
        return _word(value)
    if isinstance(value, ComponentSettings):
        told: Any = value
        said = [_Named(f"{one.name}=", _literal(getattr(value, one.name))) for one in fields(told)]
        return _Group(f"{value.component}.Settings(", tuple(said), ")")
    if isinstance(value, tuple):
        return _sequence(tuple(map(_literal, value)))
    if isinstance(value, list):
        return _Group("[", tuple(map(_literal, value)), "]")
    if isinstance(value, dict):
        items = (_Named(f"{_word(key)}: ", _literal(held)) for key, held in value.items())
        return _Group("{", tuple(items), "}")
    return repr(value)


def _sequence(parts: tuple[_Part, ...]) -> _Group:
    return _Group("(", parts, ")", single=len(parts) == 1)


def _word(text: str) -> str:
    """Returns a string literal in double quotes, unless the text contains some."""
    plain = ascii(text)
    return plain if '"' in plain else '"' + plain[1:-1].replace("\\'", "'") + '"'


def _flat(part: _Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, _Named):
        return part.name + _flat(part.value)
    return f"{part.start}{', '.join(map(_flat, part.parts))}{',' * part.single}{part.end}"


def _laid(part: _Part, indent: int, before: int, after: int = 0) -> str:
    """Lays out a part: on one line if it fits, else the inside on its own line, else one line per
    part.

    before, after: columns of the line that are already used, and needed after it.
    """
    flat = _flat(part)
    if isinstance(part, str) or before + len(flat) + after <= WIDTH:
        return flat
    if isinstance(part, _Named):
        return part.name + _laid(part.value, indent, before + len(part.name), after)
    inner = indent + 4
    space, body = " " * inner, ", ".join(map(_flat, part.parts))
    if inner + len(body) <= WIDTH and not part.single:
        lines = f"{space}{body}\n"
    else:
        lines = "".join(f"{space}{_laid(one, inner, inner, 1)},\n" for one in part.parts)
    return f"{part.start}\n{lines}{' ' * indent}{part.end}"
