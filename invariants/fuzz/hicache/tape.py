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

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.files import (
    ANY,
    FLAG,
    TEXT,
    Named,
    Only,
    Spare,
    Value,
    fit,
    parsed,
    show,
    text_of,
    whole,
)
from hicache.runtime import recording_format
from hicache.runtime.config_document import MAY_LACK, config_of, types, written
from invariants.fuzz.hicache.executors import REPLIES, settings_of
from invariants.fuzz.schedules import schedule_of

FORMAT, VERSION = "hicache-fuzz", 1
MOST_RANKS = 8
ATTACH = "attach"  # the operation that attaches a storage, and the argument of others that do
MOST_BYTES = 64 << 20
MOST_LINE = 4 << 20  # characters; parsing a line takes many times its length
MOST = 1 << 30  # of any number except the seed
MOST_PAGES = 1 << 20  # of one pool: a thousand times the largest drawn pool
_WANTED = "expected a tape of hicache fuzz"

_NAME = Value("a name", lambda one: isinstance(one, str) and len(one) <= 100)
_COUNT = whole(0, MOST)
_HEAD = Only(
    {
        "tape": TEXT,
        "version": whole(VERSION, VERSION),
        "seed": Spare(whole(0, (1 << 64) - 1)),
        "order": TEXT,
        "notes": Spare(Named(TEXT)),
        "config": Named(ANY),
        "executor": Spare(TEXT),
        "ranks": Spare(whole(1, MOST_RANKS)),
        "pairs": Spare(FLAG),
    }
)
# By the type of a setting. The core decides which numbers and names are legal.
_SETTINGS: dict[str, Any] = {
    "int": whole(-MOST, MOST),
    "bool": FLAG,
    "str": _NAME,
    "tuple[str, ...]": [_NAME],
    "tuple[int, ...]": [whole(-MOST_PAGES, MOST_PAGES)],
}
_AGAIN = "record the tape again"
_MEND = f"mend the line or {_AGAIN}"


def _is_act(act: Any) -> bool:
    return (
        isinstance(act, list)
        and len(act) == 3
        and all(map(_COUNT.fits, act[:2]))
        and isinstance(act[2], str)
    )


_ENTRY = Only(
    {
        "op": TEXT,
        "args": Named(ANY),
        "gap": Spare(_COUNT),
        "poll": Spare(FLAG),
        "acts": Spare([Value(f"[delay, tie, fault], two {_COUNT.says} and a text", _is_act)]),
    }
)


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
    return written_lines(head, tape.entries)


def written_lines(head: dict[str, Any], entries: tuple[Entry, ...]) -> str:
    """The file form: the head, a line for each entry, and the last line."""
    rows = [head, *map(_entry_document, entries), {"end": len(entries)}]
    return "".join(f"{_line(row)}\n" for row in rows)


def loads(text: str, name: str = "tape") -> Tape:
    """Parses a tape. Raises CallerError with one line if it is not a complete tape of this
    version.
    """
    head, entries = read_lines(text, name, _WANTED, lambda head: _check_head(head, name))
    return _tape(head, entries, name)


def read_lines(
    text: str, name: str, wanted: str, check: Callable[[dict[str, Any]], None]
) -> tuple[dict[str, Any], tuple[Entry, ...]]:
    """Parses the file form of a tape. wanted: says which tape is expected. check: raises
    CallerError for a head that is not one of that kind. Raises CallerError."""
    if not text:
        raise CallerError(f"{name}: {wanted}, found an empty file; name a tape")
    rows = _rows(text, name)
    head = next(rows)
    check(head)
    entries: list[Entry] = []
    end: dict[str, Any] = {}
    for number, row in enumerate(rows, 2):
        if end:
            raise CallerError(
                f"{name}, line {number}: expected nothing behind the last line, found "
                f"{show(row)}; the file was edited"
            )
        if row.keys() == {"end"}:
            end = row
        else:
            entries.append(_entry(row, name, number))
    if type(end.get("end")) is not int or end["end"] != len(entries):
        found = show(end["end"]) if end else "the end of the file"
        raise CallerError(
            f"{name}: expected the number of its entries, {len(entries)}, in the last line, found "
            f"{found}; it was cut off, copy it again"
        )
    return head, tuple(entries)


def _check_head(head: dict[str, Any], name: str) -> None:
    """Raises CallerError unless the head is a tape of this version with known fields."""
    if recording_format.HEADER in head:
        raise CallerError(f"{name}: {_WANTED}, found a recording of hicache twin; name a tape")
    if head.get("tape") != FORMAT:
        names = ", ".join(list(head)[:4])
        said = f"format {show(head['format'])}" if "format" in head else show(names)[1:-1]
        raise CallerError(f"{name}: {_WANTED}, found {said or 'no field'}; name a tape")
    version = head.get("version")
    if type(version) is not int or version != VERSION:
        raise CallerError(
            f"{name}: expected version {VERSION}, found {show(version)}; record it again "
            "with this version's `hicache fuzz`"
        )


def _tape(head: dict[str, Any], entries: tuple[Entry, ...], name: str) -> Tape:
    given = fit(head, _HEAD, name, _AGAIN)
    order, executor = given["order"], given.get("executor", REPLIES)
    try:
        schedule_of(order)
        settings_of(executor)
    except CallerError as error:
        raise CallerError(f"{name}: {error}; {_AGAIN}") from error
    optional = {key: given[key] for key in ("seed", "notes", "ranks", "pairs") if key in given}
    tape = Tape(_config(given["config"], name), entries, order=order, executor=executor, **optional)
    if (tape.ranks > 1 or tape.pairs or has_storage(tape)) and executor != REPLIES:
        raise CallerError(
            f"{name}: executor: expected {REPLIES} on several ranks, with token pairs and with a "
            f"storage, found {executor!r}; {_AGAIN}"
        )
    return tape


def _rows(text: str, name: str) -> Iterator[dict[str, Any]]:
    """The object of each line. Raises CallerError for the first line without one."""
    for number, line in enumerate(io.StringIO(text), 1):
        where = f"{name}, line {number}"
        if len(line) > MOST_LINE:
            raise CallerError(
                f"{where}: expected at most {MOST_LINE} characters, found {len(line)}; the file "
                "was edited, or is something else"
            )
        try:
            row = parsed(line)
        except ValueError as error:
            reason = str(error).partition(": line ")[0]
            raise CallerError(
                f"{where}: expected JSON, found {show(line.strip())} ({reason}); the file was cut "
                "off or edited"
            ) from None
        yield fit(row, Named(ANY), where, _MEND)


def read(path: Path) -> Tape:
    """Reads a tape. Raises CallerError with one line if the file holds no complete tape."""
    return loads(text_of(str(path), "tape of hicache fuzz", MOST_BYTES, "copy it anew"), str(path))


def write(path: Path, tape: Tape) -> None:
    """Writes a tape atomically. Raises CallerError."""
    write_text(path, dumps(tape))


def write_text(path: Path, text: str) -> None:
    """Writes the file form of a tape atomically. Raises CallerError."""
    draft = path.with_name(path.name + ".part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CallerError(
            f"{path}: expected to write a tape there, found: {error.strerror}; name another file"
        ) from error


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


def _config(given: dict[str, Any], name: str) -> Config:
    kinds = types(given.get("components"))
    if {*given, *MAY_LACK} != kinds.keys():
        strange = sorted(given.keys() ^ kinds.keys())
        raise CallerError(
            f"{name}: config: expected the settings of this version, found a difference in "
            f"{show(', '.join(strange[:4]))}; {_AGAIN}"
        )
    shapes = {key: Spare(_SETTINGS[kind]) for key, kind in kinds.items()}
    found = fit(given, shapes, name, _AGAIN, "config")
    try:
        return config_of(
            {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in found.items()
            }
        )
    except CallerError as error:
        raise CallerError(
            f"{name}: config: expected legal settings, found: {error}; {_AGAIN}"
        ) from error


def _entry(row: dict[str, Any], name: str, number: int) -> Entry:
    given = fit(row, _ENTRY, f"{name}, line {number}", _MEND)
    return Entry(**given | {"acts": tuple(Act(*act) for act in given.get("acts", ()))})


def spoken(entry: Entry) -> str:
    """Returns the operation, its arguments, and its unusual gaps, polls and replies."""
    words = [entry.op, *(f"{name}={value}" for name, value in entry.args.items())]
    words += [f"gap={entry.gap}"] * (entry.gap != 1) + ["no poll"] * (not entry.poll)
    words += ["replies: " + "; ".join(_spoken_act(act) for act in entry.acts)] * bool(entry.acts)
    return " ".join(words)


def _spoken_act(act: Act) -> str:
    return f"after {act.delay}{f', {act.fault}' if act.fault else ''}"
