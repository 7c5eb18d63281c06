"""A sequence: the life of one cache, with an entry per operation and every choice literal in it.

So deleting an entry does not change the others. A request has the number given by its arrival. An
entry whose request is gone, or in the wrong stage, does nothing.

Lives here: the records, the file form (docs/fuzzing.md), the shapes of arguments.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hicache import files
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.files import ANY, TEXT, Named, Only, Spare, Value, fit, integer, parsed, show, unlike
from hicache.runtime.config_document import config_of, written

from .draws import Draws
from .schedules import LEAST_MADE_UP, schedule_of

FORMAT, VERSION = "hicache-fuzz", 2
OURS = "hicache"  # the target that a head without one has
REPLIES, FILES, DEVICE = "replies", "files", "device"  # executors of hicache
_DEVICE = re.compile(r"device(?::([1-8]):([1-9]\d{0,8}):(\d{1,9}):([1-9]\d{0,8}))?", re.ASCII)
ATTACH = "attach"  # the operation that attaches a storage, and the argument of others that do
MOST_RANKS = 8
MOST_BYTES = 64 << 20
MOST_LINE = 4 << 20  # characters; parsing a line takes many times its length
MOST = 1 << 30  # of any number except the seed
MOST_PAGES = 1 << 20  # of one pool: a thousand times the largest drawn pool
MOST_TOKENS = 1 << 20  # of one prompt
_AGAIN = "record the sequence again"
_MEND = f"mend the line or {_AGAIN}"


# -- shapes of arguments (see hicache/files)

Schema = dict[str, Any]


def number(least: int = 0, most: int = MOST) -> Value:
    return integer(least, most)


def word(*options: str) -> Value:
    """One of these words, or any printable word if none are given."""
    return files.word(*options) if options else _WORD


def _is_run(run: Any) -> bool:
    return isinstance(run, list) and len(run) == 2 and _TOKEN.fits(run[0]) and COUNT.fits(run[1])


def _is_prompt(value: Any) -> bool:
    runs = value if isinstance(value, list) and all(map(_is_run, value)) else ()
    return bool(0 < sum(count for _, count in runs) <= MOST_TOKENS)


_WORD = Value("a word", lambda x: isinstance(x, str) and len(x) <= 100 and f"{x} ".isprintable())
_TOKEN, COUNT = integer(0, (1 << 62) - 1), integer(1, MOST_TOKENS)
FLAG = files.FLAG
OPTIONAL_FLAG = Spare(FLAG)
PROMPT = Value(f"runs of [token, how many], 1 to {MOST_TOKENS} tokens", _is_prompt)
REQUEST = number()
NEW_REQUEST = number(most=LEAST_MADE_UP - 1)


def pack(tokens: list[int]) -> list[list[int]]:
    """Encodes tokens as runs: [token, count]."""
    runs: list[list[int]] = []
    for token in tokens:
        if runs and runs[-1][0] == token:
            runs[-1][1] += 1
        else:
            runs.append([token, 1])
    return runs


def unpack(runs: list[list[int]]) -> list[int]:
    return [token for token, count in runs for _ in range(count)]


# -- records


class Act(NamedTuple):
    """The result of one action. delay: time from its issue to its reply. tie: order among replies
    due at once (with order "priority", among all due replies). fault: name of a fault, or ""."""

    delay: int
    tie: int
    fault: str = ""


PLAIN = Act(1, 0)


class Entry(NamedTuple):
    op: str
    args: dict[str, Any]
    gap: int = 1
    poll: bool = True
    acts: tuple[Act, ...] = ()

    def __str__(self) -> str:
        """The operation, its arguments, and its unusual gaps, polls and replies."""
        words = [self.op, *(f"{name}={value}" for name, value in self.args.items())]
        words += [f"gap={self.gap}"] * (self.gap != 1) + ["no poll"] * (not self.poll)
        acts = (f"after {act.delay}{f', {act.fault}' if act.fault else ''}" for act in self.acts)
        return " ".join([*words, *["replies: " + "; ".join(acts)] * bool(self.acts)])


@dataclass(frozen=True)
class FuzzSequence:
    """A sequence. config: of the core, or the JSON values that another target has. order: schedule
    that takes the replies. seed: that it was drawn from. target, release: where it was recorded; it
    plays on any release.

    Of hicache alone: ranks, the number of cores; pairs, whether keys hold token pairs; executor,
    how actions are carried out: "replies", not at all, replies come when they are due; "files", the
    same, and a real store is played in the end; "device:LAYERS:PAGE_NS:LATENCY_NS:DEPTH", by the
    transfer controller on a simulated device."""

    config: Any
    entries: tuple[Entry, ...]
    seed: int = 0
    order: str = "time"
    notes: dict[str, str] = field(default_factory=dict)
    ranks: int = 1
    executor: str = REPLIES
    pairs: bool = False
    target: str = OURS
    release: str = ""


def settings_of(executor: str) -> tuple[int, ...]:
    """The four numbers of a device, usual ones behind `device` alone; () if there is none. Raises
    CallerError."""
    form = _DEVICE.fullmatch(executor)
    if form is None and executor not in (REPLIES, FILES):
        numbers = "1 to 8 layers, PAGE_NS, LATENCY_NS and a depth after colons"
        expected = f"{REPLIES}, {FILES}, or {DEVICE} with {numbers}"
        raise CallerError(f"executor: expected {expected}, found {show(executor)}")
    return tuple(map(int, form.groups(0) if form[1] else (1, 1, 0, 8))) if form else ()


# -- files


def dumps(sequence: FuzzSequence) -> str:
    head: dict[str, Any] = {"sequence": FORMAT, "version": VERSION}
    if isinstance(sequence.config, Config):
        head["config"] = written(sequence.config)
        for name, usual in (("executor", REPLIES), ("ranks", 1), ("pairs", False)):
            if (value := getattr(sequence, name)) != usual:
                head[name] = value
    else:
        head |= {"config": sequence.config, "target": sequence.target, "release": sequence.release}
    head |= {"seed": sequence.seed, "order": sequence.order, "notes": sequence.notes}
    rows = [
        head,
        *(entry._asdict() | {"acts": list(map(list, entry.acts))} for entry in sequence.entries),
        {"end": len(sequence.entries)},
    ]
    return "".join(json.dumps(row, separators=(",", ":"), sort_keys=True) + "\n" for row in rows)


def read(path: Path) -> FuzzSequence:
    """Reads a sequence. Raises CallerError with one line if the file holds no complete one."""
    text = files.text_of(str(path), "sequence of hicache fuzz", MOST_BYTES, "copy it anew")
    return loads(text, str(path))


def loads(text: str, name: str = "sequence") -> FuzzSequence:
    """Parses a sequence. Raises CallerError with one line unless it is complete and of this
    version."""
    rows = _rows(text, name)
    head = next(rows, {})
    if head.get("version") == 1:  # whose first field has another name
        head = head | {"sequence": head.pop("tape", None), "version": VERSION}
    if head.get("sequence") != FORMAT:
        keys = f"the fields {', '.join(list(head)[:4])}" if head else "an empty file"
        raise unlike(name, "a sequence of hicache fuzz", keys[:80], "name one")
    fit(head.get("version"), integer(VERSION, VERSION), name, _AGAIN, "version")
    entries: list[Entry] = []
    end: Any = None
    for line, row in enumerate(rows, 2):
        where = f"{name}, line {line}"
        if end is not None:
            raise unlike(where, "nothing behind the last line", "another", "the file was edited")
        if row.keys() == {"end"}:
            end = row["end"]
        else:
            shape = fit(row, _ENTRY, where, _MEND)
            acts = tuple(Act(*act) for act in shape.get("acts", ()))
            entries.append(Entry(**shape | {"acts": acts}))
    if type(end) is not int or end != len(entries):
        expected = f"the number of its entries, {len(entries)}, in the last line"
        raise unlike(name, expected, show(end), "it was cut off, copy it again")
    return _sequence(fit(head, _HEAD, name, _AGAIN), tuple(entries), name)


_COUNT = integer(0, MOST)
_HEAD = Only(
    {
        "sequence": TEXT,
        "version": integer(VERSION, VERSION),
        "config": Named(ANY),
        "order": TEXT,
        "seed": Spare(integer(0, (1 << 64) - 1)),
        "notes": Spare(Named(TEXT)),
        "target": Spare(TEXT),
        "release": Spare(TEXT),
        "executor": Spare(TEXT),
        "ranks": Spare(integer(1, MOST_RANKS)),
        "pairs": Spare(FLAG),
    }
)


def _is_act(act: Any) -> bool:
    three = isinstance(act, list) and len(act) == 3
    return three and all(map(_COUNT.fits, act[:2])) and isinstance(act[2], str)


_ENTRY = Only(
    {
        "op": TEXT,
        "args": Named(ANY),
        "gap": Spare(_COUNT),
        "poll": Spare(FLAG),
        "acts": Spare([Value(f"[delay, tie, fault], two {_COUNT.says} and a text", _is_act)]),
    }
)


def _rows(text: str, name: str) -> Iterator[dict[str, Any]]:
    """The object of each line. Raises CallerError for the first line without one."""
    for number_of_line, line in enumerate(io.StringIO(text), 1):
        where = f"{name}, line {number_of_line}"
        if len(line) > MOST_LINE:
            most = f"at most {MOST_LINE} characters"
            raise unlike(where, most, f"{len(line)}", "name a sequence")
        try:
            row = parsed(line)
        except ValueError as error:
            result = f"{show(line.strip())} ({str(error).partition(': line ')[0]})"
            raise unlike(where, "JSON", result, "the file was cut off or edited") from None
        yield fit(row, Named(ANY), where, _MEND)


def _sequence(head: dict[str, Any], entries: tuple[Entry, ...], name: str) -> FuzzSequence:
    del head["sequence"], head["version"]
    try:
        schedule_of(head["order"])
        settings_of(head.get("executor", REPLIES))
    except CallerError as error:
        raise CallerError(f"{name}: {error}; {_AGAIN}") from error
    if "target" in head:
        return FuzzSequence(entries=entries, **head)
    sequence = FuzzSequence(**head | {"entries": entries, "config": _config(head["config"], name)})
    attaches = (entry.op == ATTACH or entry.args.get(ATTACH) for entry in entries)
    device = sequence.executor not in (REPLIES, FILES)
    if (device and (sequence.pairs or sequence.config.storage or any(attaches))) or (
        sequence.ranks > 1 and sequence.executor != REPLIES
    ):
        expected = f"{REPLIES} on several ranks, with token pairs and with a storage"
        raise unlike(f"{name}: executor", expected, repr(sequence.executor), _AGAIN)
    return sequence


def _config(values: dict[str, Any], name: str) -> Config:
    items = values.items()
    try:
        config = config_of({key: tuple(x) if isinstance(x, list) else x for key, x in items})
        if max(*config.device_pages, *config.host_pages) > MOST_PAGES:
            raise CallerError(f"pools of more than {MOST_PAGES} pages")
    except (CallerError, TypeError) as error:
        raise unlike(f"{name}: config", "legal settings", str(error)[:300], _AGAIN) from error
    return config


# -- entries


class Operation(NamedTuple):
    """weight: how often it is drawn; 0: only where something else asks for it. args: the shapes of
    its arguments. draw: from a player and draws, literal arguments for this state, or None if it is
    not possible. play: performs it, from a player and its arguments."""

    weight: int
    args: Schema
    draw: Callable[[Any, Draws], dict[str, Any] | None]
    play: Callable[[Any, dict[str, Any]], object]


def of_request(
    weight: int,
    stages: tuple[str, ...],
    play: Callable[[Any, Any, dict[str, Any]], object],
    draw: Callable[[Any, Draws, Any], dict[str, Any]] = lambda player, draws, job: {},
    able: Callable[[Any], bool] = lambda player: True,
    **args: Any,
) -> Operation:
    """The operation of a request in one of these stages, of a player that is able to do it. draw:
    its further arguments."""

    def drawn(player: Any, draws: Draws) -> dict[str, Any] | None:
        job = draws.choice(jobs) if able(player) and (jobs := player.pick(*stages)) else None
        return {"request": job.id, **draw(player, draws, job)} if job else None

    def played(player: Any, args: dict[str, Any]) -> None:
        job = player.job(args["request"], *stages)
        if job is not None and able(player):
            play(player, job, args)

    return Operation(weight, {"request": REQUEST, **args}, drawn, played)


def check(
    sequence: FuzzSequence,
    ops: Mapping[str, Operation],
    name: str = "sequence",
    faults: Iterable[str] | None = None,
) -> None:
    """Raises CallerError with one line if an operation, a fault (None: any) or a setting of our
    core is unknown or invalid."""
    if isinstance(sequence.config, Config):
        try:
            Core(sequence.config)
        except CallerError as error:
            raise CallerError(f"{name}: config: {error}; {_AGAIN}") from error
    known = None if faults is None else ("", *faults)
    for line, entry in enumerate(sequence.entries, 2):
        where = f"{name}, line {line}"
        if entry.op not in ops:
            expected = f"an operation of this version ({', '.join(ops)})"
            raise unlike(where, expected, show(entry.op), _AGAIN)
        fit(entry.args, Only(ops[entry.op].args), f"{where}: {entry.op}", _MEND)
        for act in entry.acts:
            if known and act.fault not in known:
                raise unlike(where, "a fault of this version", show(act.fault), _MEND)
