"""Tapes: the life of one core, with an entry per operation and all random choices.

    line 1      {"tape": "hicache-fuzz", "version": 1, "seed": 7, "order": "time", "config": {...}}
                and "executor", if it is not "replies"
    then        {"op": "arrive", "args": {...}, "gap": 3, "poll": true, "acts": [[40, 0, ""], ...]}
    last line   {"end": 118}

An entry holds the literal arguments of its operation, the time before it, whether the host polls
first, and (delay, tie, fault) for each action that the core issues. Deleting an entry therefore
does not change the others. A request has the number given by its arrival. An entry whose request is
gone, or in the wrong stage, does nothing.

Lives here: the records and the file format. Does not define operations (see ops).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.files import text_of
from hicache.runtime import recording_format
from hicache.runtime.config_document import MAY_LACK, config_of, types, written

from ..executors import REPLIES, model_of, settings_of
from ..schedules import schedule_of
from . import lines

FORMAT, VERSION = "hicache-fuzz", 1
MOST_RANKS = 8
ATTACH = "attach"  # the operation that attaches a storage, and the argument of others that do
MOST = 1 << 30  # of any number except the seed
MOST_PAGES = 1 << 20  # of one pool: a thousand times the largest drawn pool
_WANTED = "expected a tape of hicache fuzz"
_HEAD = ("tape", "version", "seed", "order", "notes", "config", "executor", "ranks", "pairs")

Fits = tuple[str, Callable[[Any], bool]]


def _listed(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return _is_text(value) and len(value) <= 100


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _is_act(act: Any) -> bool:
    return (
        isinstance(act, list)
        and len(act) == 3
        and all(map(_is_count, act[:2]))
        and isinstance(act[2], str)
    )


_FIELDS: dict[str, Fits] = {
    "op": ("a name", _is_text),
    "args": ("an object", lambda one: isinstance(one, dict)),
    "gap": (f"an integer from 0 to {MOST}", _is_count),
    "poll": ("true or false", lambda one: isinstance(one, bool)),
    "acts": (
        f"a list of [delay, tie, fault], two integers from 0 to {MOST} and a text",
        lambda one: _listed(one, _is_act),
    ),
}
_LEFT_OUT: dict[str, Any] = {"gap": 1, "poll": True, "acts": []}
# By the type of a setting: the expected value, and a test of a value. The core decides which
# numbers and names are legal.
_SETTINGS: dict[str, Fits] = {
    "int": (f"an integer up to {MOST}", lambda one: type(one) is int and abs(one) <= MOST),
    "bool": ("true or false", lambda one: isinstance(one, bool)),
    "str": ("a name", _is_name),
    "tuple[str, ...]": ("a list of names", lambda one: _listed(one, _is_name)),
    "tuple[int, ...]": (
        f"a list of integers up to {MOST_PAGES}",
        lambda one: _listed(one, lambda size: type(size) is int and abs(size) <= MOST_PAGES),
    ),
}


class Act(NamedTuple):
    """The result of one action. delay: time from its issue to its reply. tie: order among replies
    due at once (with order "priority", among all due replies). fault: name of a fault, or "".
    """

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
    """A tape. config: of the core. order: schedule that takes the replies. seed: that it was drawn
    from. ranks: number of cores. executor: see executors. pairs: whether keys hold token pairs. The
    file contains ranks, executor and pairs only if they differ from the defaults.
    """

    config: Config
    entries: tuple[Entry, ...]
    seed: int = 0
    order: str = "time"
    notes: dict[str, str] = field(default_factory=dict)
    ranks: int = 1
    executor: str = REPLIES
    pairs: bool = False


def has_storage(tape: Tape) -> bool:
    """Whether a storage is attached at any time."""
    attaches = (entry.op == ATTACH or entry.args.get(ATTACH) for entry in tape.entries)
    return tape.config.storage or any(attaches)


def dumps(tape: Tape) -> str:
    head: dict[str, Any] = {
        "tape": FORMAT,
        "version": VERSION,
        "seed": tape.seed,
        "order": tape.order,
        "notes": tape.notes,
        "config": written(tape.config),
    }
    if tape.executor != REPLIES:
        head["executor"] = tape.executor
    if tape.ranks != 1:
        head["ranks"] = tape.ranks
    if tape.pairs:
        head["pairs"] = True
    rows = [head, *map(_entry_document, tape.entries), {"end": len(tape.entries)}]
    return "".join(f"{_line(row)}\n" for row in rows)


def loads(text: str, name: str = "tape") -> Tape:
    """Parses a tape. Raises CallerError with one line if it is not a complete tape of this
    version.
    """
    if not text:
        raise CallerError(f"{name}: {_WANTED}, found an empty file; name a tape")
    rows = lines.rows(text, name)
    head = next(rows)
    _check_head(head, name)
    entries: list[Entry] = []
    end: dict[str, Any] = {}
    for number, row in enumerate(rows, 2):
        if end:
            raise CallerError(
                f"{name}, line {number}: expected nothing behind the last line, found "
                f"{lines.quoted(str(row))}; the file was edited"
            )
        if row.keys() == {"end"}:
            end = row
        else:
            entries.append(_entry(row, name, number))
    if type(end.get("end")) is not int or end["end"] != len(entries):
        found = lines.quoted(end["end"]) if end else "the end of the file"
        raise CallerError(
            f"{name}: expected the number of its entries, {len(entries)}, in the last line, found "
            f"{found}; it was cut off, copy it again"
        )
    return _tape(head, tuple(entries), name)


def _check_head(head: dict[str, Any], name: str) -> None:
    """Raises CallerError unless the head is a tape of this version with known fields."""
    if recording_format.HEADER in head:
        raise CallerError(
            f"{name}: {_WANTED}, found a recording of hicache twin; give it to hicache twin --race"
        )
    if head.get("tape") != FORMAT:
        names = ", ".join(list(head)[:4])
        said = f"format {lines.quoted(head['format'])}" if "format" in head else names
        raise CallerError(
            f"{name}: {_WANTED}, found {lines.quoted(said)[1:-1] or 'no field'}; name a tape"
        )
    version = head.get("version")
    if type(version) is not int or version != VERSION:
        raise CallerError(
            f"{name}: expected version {VERSION}, found {lines.quoted(version)}; record it again "
            "with this version's `hicache fuzz`"
        )
    strange = lines.stranger(head, _HEAD)
    if strange:
        raise CallerError(
            f"{name}, line 1: expected only {', '.join(_HEAD)}, found {strange}; record the tape "
            "again"
        )


def _tape(head: dict[str, Any], entries: tuple[Entry, ...], name: str) -> Tape:
    order = _name(head.get("order"), "order", name)
    executor = _name(head.get("executor", REPLIES), "executor", name)
    try:
        schedule_of(order)
        settings_of(executor)
    except CallerError as error:
        raise CallerError(f"{name}: {error}; record the tape again") from error
    config = _config(head.get("config"), name)
    seed, notes = head.get("seed", 0), head.get("notes", {})
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise CallerError(f"{name}: seed: expected 0 to 2**64 - 1, found {lines.quoted(seed)}")
    if not isinstance(notes, dict) or not all(isinstance(one, str) for one in notes.values()):
        raise CallerError(
            f"{name}: notes: expected an object of texts, found {lines.quoted(str(notes))}"
        )
    ranks, pairs = _ranks(head.get("ranks", 1), name), head.get("pairs", False)
    if not isinstance(pairs, bool):
        raise CallerError(f"{name}: pairs: expected true or false, found {lines.quoted(pairs)}")
    tape = Tape(config, entries, seed, order, notes, ranks, executor, pairs)
    stored = has_storage(tape) and model_of(executor) is None
    if (ranks > 1 or pairs or stored) and executor != REPLIES:
        raise CallerError(
            f"{name}: executor: expected {REPLIES} on several ranks, with token pairs and with a "
            f"storage, found {executor!r}; record the tape again"
        )
    return tape


def read(path: Path) -> Tape:
    """Reads a tape. Raises CallerError with one line if the file holds no complete tape."""
    return loads(
        text_of(str(path), "tape of hicache fuzz", lines.MOST_BYTES, "copy it anew"), str(path)
    )


def write(path: Path, tape: Tape) -> None:
    """Writes a tape atomically. Raises CallerError."""
    draft = path.with_name(path.name + ".part")
    try:
        draft.write_text(dumps(tape), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CallerError(
            f"{path}: expected to write a tape there, found: {error.strerror}; name another file"
        ) from error


def _name(value: Any, setting: str, name: str) -> str:
    if not isinstance(value, str):
        raise CallerError(f"{name}: {setting}: expected a name, found {lines.quoted(value)}")
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


def _config(found: Any, name: str) -> Config:
    given = found if isinstance(found, dict) else {}
    kinds = types(given.get("components"))
    if {*given, *MAY_LACK} != kinds.keys():
        strange = sorted(given.keys() ^ kinds.keys())
        raise CallerError(
            f"{name}: config: expected the settings of this version, found a difference in "
            f"{lines.quoted(', '.join(strange[:4]))}; record the tape again"
        )
    for key, value in (found if isinstance(found, dict) else {}).items():
        says, fits = _SETTINGS[kinds[key]]
        if not fits(value):
            raise CallerError(
                f"{name}: config: expected legal settings, {key}: {says}, found "
                f"{lines.quoted(value)}; record the tape again"
            )
    plain: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
    }
    try:
        return config_of(plain)
    except CallerError as error:
        raise CallerError(
            f"{name}: config: expected legal settings, found: {error}; record the tape again"
        ) from error


def _ranks(found: Any, name: str) -> int:
    if type(found) is not int or not 1 <= found <= MOST_RANKS:
        raise CallerError(
            f"{name}: ranks: expected 1 to {MOST_RANKS}, found {lines.quoted(found)}; "
            "record the tape again"
        )
    return found


def _entry(row: dict[str, Any], name: str, number: int) -> Entry:
    where = f"{name}, line {number}: expected an operation"
    strange = lines.stranger(row, _FIELDS)
    if strange:
        raise CallerError(
            f"{where} with only {', '.join(_FIELDS)}, found {strange}; mend the line or record "
            "the tape again"
        )
    given = _LEFT_OUT | row
    for field_, (says, fits) in _FIELDS.items():
        if not fits(given.get(field_)):
            found = lines.quoted(given[field_]) if field_ in given else "none"
            raise CallerError(
                f"{where} with {field_}, {says}, found {found}; mend the line or record the tape "
                "again"
            )
    return Entry(given["op"], given["args"], given["gap"], given["poll"], _acts(given["acts"]))


def _acts(acts: Iterable[list[Any]]) -> tuple[Act, ...]:
    return tuple(Act(*act) for act in acts)


def spoken(entry: Entry) -> str:
    """Returns the operation, its arguments, and its unusual gaps, polls and replies."""
    words = [entry.op, *(f"{name}={value}" for name, value in entry.args.items())]
    words += [f"gap={entry.gap}"] * (entry.gap != 1) + ["no poll"] * (not entry.poll)
    words += ["replies: " + "; ".join(_spoken_act(act) for act in entry.acts)] * bool(entry.acts)
    return " ".join(words)


def _spoken_act(act: Act) -> str:
    return f"after {act.delay}{f', {act.fault}' if act.fault else ''}"
