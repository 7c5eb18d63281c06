"""Tapes: one life of one core, an entry per operation, with everything random about it.

    line 1      {"tape": "hicache-fuzz", "version": 1, "seed": 7, "order": "time", "config": {...}}
                and "executor", where it is not "replies"
    then        {"op": "arrive", "args": {...}, "gap": 3, "poll": true, "acts": [[40, 0, ""], ...]}
    last line   {"end": 118}

An entry holds its operation's arguments literally, the time before it, whether the host polls
first, and for the actions that the core answers with, in turn, (delay, tie, fault). So deleting an
entry changes nothing about the others. Requests are named by the number that their arrival chose;
an entry that finds its request gone, or not in the state it needs, does nothing.

Lives here: the records and their file form. Must not live here: what an operation means.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from hicache.core.config import Config
from hicache.core.errors import CallerError

from .executors import REPLIES, settings_of
from .schedules.base import schedule_of

FORMAT, VERSION = "hicache-fuzz", 1
MOST_BYTES = 64 << 20
MOST_RANKS = 8


class Act(NamedTuple):
    """What becomes of one action: its reply is due `delay` after it was issued, `tie` orders those
    due at once (all that are due, under order "priority"), and `fault` names what goes wrong."""

    delay: int
    tie: int
    fault: str = ""


class Entry(NamedTuple):
    op: str
    args: dict[str, Any]
    gap: int = 1
    poll: bool = True
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True)
class Tape:
    """config: of the core. order: which schedule takes the replies. seed: where it came from.
    ranks: how many cores are told the same; said in the file where it is not 1.
    executor: who carries out what the core asks for; said where it is not replies alone.
    pairs: whether a key has a row of token pairs per page, not of tokens; said where it has."""

    config: Config
    entries: tuple[Entry, ...]
    seed: int = 0
    order: str = "time"
    notes: dict[str, str] = field(default_factory=dict)
    ranks: int = 1
    executor: str = REPLIES
    pairs: bool = False


def dumps(tape: Tape) -> str:
    head: dict[str, Any] = {
        "tape": FORMAT,
        "version": VERSION,
        "seed": tape.seed,
        "order": tape.order,
        "notes": tape.notes,
        "config": asdict(tape.config),
    }
    if tape.executor != REPLIES:
        head["executor"] = tape.executor
    if tape.ranks != 1:
        head["ranks"] = tape.ranks
    if tape.pairs:
        head["pairs"] = True
    lines = [_line(head)]
    lines += [_line(_entry_document(entry)) for entry in tape.entries]
    lines.append(_line({"end": len(tape.entries)}))
    return "\n".join(lines) + "\n"


def loads(text: str, name: str = "tape") -> Tape:
    """Raises CallerError, one line, for anything that is not a whole tape of this version."""
    rows = [_parse(line, name, number) for number, line in enumerate(text.splitlines(), 1)]
    if not rows or rows[0].get("tape") != FORMAT:
        raise CallerError(f"{name}: expected a tape of hicache fuzz, found something else")
    head = rows[0]
    if head.get("version") != VERSION:
        raise CallerError(
            f"{name}: expected version {VERSION}, found {head.get('version')!r}; record it again "
            "with this version's `hicache fuzz`"
        )
    if len(rows) < 2 or rows[-1] != {"end": len(rows) - 2}:
        raise CallerError(
            f"{name}: expected the number of its entries in the last line, found the end of the "
            "file; it was cut off, copy it again"
        )
    order = _name(head.get("order"), "order", name)
    executor = _name(head.get("executor", REPLIES), "executor", name)
    try:
        schedule_of(order)
        settings_of(executor)
    except CallerError as error:
        raise CallerError(f"{name}: {error}") from error
    config = _config(head.get("config"), name)
    entries = tuple(_entry(row, name, number) for number, row in enumerate(rows[1:-1], 2))
    seed, notes = head.get("seed", 0), head.get("notes", {})
    if not isinstance(seed, int) or not isinstance(notes, dict):
        raise CallerError(f"{name}: expected a number as seed and an object as notes")
    ranks, pairs = _ranks(head.get("ranks", 1), name), head.get("pairs", False)
    if not isinstance(pairs, bool):
        raise CallerError(f"{name}: pairs: expected true or false, found {pairs!r}")
    if (ranks > 1 or pairs) and executor != REPLIES:
        raise CallerError(
            f"{name}: executor: expected {REPLIES} on several ranks and with token pairs, "
            f"found {executor!r}"
        )
    return Tape(config, entries, seed, order, notes, ranks, executor, pairs)


def read(path: Path) -> Tape:
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise CallerError(f"{path}: expected at most {MOST_BYTES} bytes, found {size}")
        return loads(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"{path}: expected a readable tape, found: {error}") from error


def write(path: Path, tape: Tape) -> None:
    """Whole or not at all."""
    draft = path.with_name(path.name + ".part")
    try:
        draft.write_text(dumps(tape), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CallerError(f"{path}: expected to write a tape there, found: {error}") from error


def _name(value: Any, setting: str, name: str) -> str:
    if not isinstance(value, str):
        raise CallerError(f"{name}: {setting}: expected a name, found {value!r}")
    return value


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def _entry_document(entry: Entry) -> dict[str, Any]:
    return {
        "op": entry.op,
        "args": entry.args,
        "gap": entry.gap,
        "poll": entry.poll,
        "acts": [list(act) for act in entry.acts],
    }


def _parse(line: str, name: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CallerError(
            f"{name}, line {number}: expected JSON, found {line[:40]!r}; the file was cut off or "
            "edited"
        ) from error
    if not isinstance(row, dict):
        raise CallerError(f"{name}, line {number}: expected an object, found {line[:40]!r}")
    return row


def _config(document: Any, name: str) -> Config:
    known = {one.name for one in fields(Config)}
    given = document if isinstance(document, dict) else {}
    if given.keys() != known:
        strange = sorted(given.keys() ^ known)
        raise CallerError(
            f"{name}: config: expected the settings of this version, found a difference in "
            f"{', '.join(strange[:4])}; record the tape again"
        )
    plain: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
    }
    try:
        return Config(**plain)
    except (CallerError, TypeError, ValueError) as error:
        raise CallerError(f"{name}: config: expected legal settings, found: {error}") from error


def _ranks(found: Any, name: str) -> int:
    if type(found) is not int or not 1 <= found <= MOST_RANKS:
        raise CallerError(
            f"{name}: ranks: expected 1 to {MOST_RANKS}, found {str(found)[:40]!r}; "
            "record the tape again"
        )
    return found


def _entry(row: dict[str, Any], name: str, number: int) -> Entry:
    op, args, acts = row.get("op"), row.get("args"), row.get("acts", [])
    gap, poll = row.get("gap", 1), row.get("poll", True)
    fine = (
        isinstance(op, str)
        and isinstance(args, dict)
        and isinstance(acts, list)
        and isinstance(gap, int)
        and gap >= 0
        and isinstance(poll, bool)
        and all(_is_act(act) for act in acts)
    )
    if not fine:
        raise CallerError(f"{name}, line {number}: expected an operation, found {str(row)[:60]}")
    return Entry(str(op), dict(args or {}), int(gap), bool(poll), _acts(acts))


def _acts(acts: Iterable[list[Any]]) -> tuple[Act, ...]:
    return tuple(Act(*act) for act in acts)


def _is_act(act: Any) -> bool:
    return (
        isinstance(act, list)
        and len(act) == 3
        and all(isinstance(number, int) and number >= 0 for number in act[:2])
        and isinstance(act[2], str)
    )
