"""The format of recordings: all events that a core was told, in order, with digests of its
decisions.

This file defines the lines and has the strict reader. It does not make or replay recordings; see
`recording`. `t` is a time in nanoseconds, for human readers and for `hicache twin`; no decision
depends on it.

A recording is a file of JSON lines. The first line has the version, the core's configuration and a
description of the program that made it:

    {"hicache_recording": 3, "config": {...}, "made": {...}}
    {"op": "Arrived", "t": 1200, "args": [0, [8, "", "AAAAAAAAAAA="], 64, 0], "d": "5f0c11d2"}
    {"op": "start", "t": 1300}                           queued transfers go to the device
    {"op": "check", "events": 256, "digest": "..."}      digest of the decisions so far
    {"op": "end", "events": 300, "digest": "..."}        without it, the recording is truncated

A key is [stride, namespace, base64 of its rows]. `d` has the first digits of the rolling digest
after that event, so that a replay can name the first event whose decisions differ.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from hicache.core import events
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import Event
from hicache.core.types import MOST_PRIORITY, Key, Tier
from hicache.files import ANY, FLAG, TEXT, Named, Only, Value, fit, parsed, show, unlike, whole

from .config_document import MAY_LACK, config_of, types

HEADER = "hicache_recording"
VERSION = 3
MAX_LINE_BYTES = 64 << 20

# How many of the last arguments are left out if they are defaults.
_LEFT_OUT: dict[type, int] = {events.Arrived: 1, events.Flushed: 1}
_ARGUMENTS: dict[str, tuple[type[Any], dict[str, type]]] = {
    kind.__name__: (kind, get_type_hints(kind)) for kind in get_args(Event)
}
_AGAIN = "record it again"
_KEY = "a key: [stride, namespace, base64 of whole rows]"
# By the type of an argument, or its name.
_SHAPES: dict[Any, Value] = {
    int: whole(0, (1 << 62) - 1),
    bool: FLAG,
    str: TEXT,
    Tier: Value("a tier", lambda value: type(value) is int and value in (Tier.DEVICE, Tier.HOST)),
    Key: Value(_KEY, lambda value: _key(value) is not None),
    "priority": whole(-MOST_PRIORITY, MOST_PRIORITY),
}
_FUZZ_TAPE = "hicache-fuzz"  # the format's name in the first line of a tape of the fuzzer


@dataclass(frozen=True, slots=True)
class Step:
    """An event, or a start of the queued transfers (event: None).

    short: the first digits of the digest after the event. line: its number in the file, for
    messages.
    """

    event: Event | None
    time_ns: int
    short: str
    line: int


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole recording. made: the description of the program that made it. checks: (number of
    events, digest) at intervals; the last is the end."""

    path: str
    config: Config
    made: dict[str, Any]
    steps: tuple[Step, ...]
    checks: tuple[tuple[int, str], ...]

    @property
    def digest(self) -> str:
        return self.checks[-1][1]

    @property
    def events(self) -> int:
        return self.checks[-1][0]


def read_recording(path: str) -> Recording:
    """The recording in a file. Raises CallerError that names the line of the first error."""
    try:
        with open(path, "rb") as stream:
            return parse(path, iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""))
    except OSError as error:
        raise CallerError(
            f"{path}: expected a readable recording, found: {error.strerror}; check the path"
        ) from None


def parse(path: str, lines: Iterable[bytes]) -> Recording:
    """The recording in these lines. A line has at most MAX_LINE_BYTES + 1 bytes. Raises CallerError
    that names the line of the first error."""
    source = _Source(path, lines)
    config, made = _header(source)
    steps: list[Step] = []
    checks: list[tuple[int, str]] = []
    counted = 0
    for record in source:
        op = record.get("op")
        if op in ("check", "end"):
            events_ = whole(counted, counted)  # as many as came before
            shape = Only({"op": TEXT, "events": events_, "digest": _hex(32)})
            checks.append((counted, source.fit(record, shape)["digest"]))
            if op == "end":
                next_line = next(iter(source), None)
                if next_line is not None:
                    raise source.wrong("nothing after the end", "another line", "cut it off")
                return Recording(path, config, made, tuple(steps), tuple(checks))
        elif op == "start":
            time_ns = source.fit(record, Only({"op": TEXT, "t": _SHAPES[int]}))["t"]
            steps.append(Step(None, time_ns, "", source.number))
        else:
            steps.append(_event(source, record))
            counted += 1
    source.number += 1
    raise source.wrong("the end of the recording", "a truncated file", _AGAIN)


_MOST_PAGES = 1 << 24  # limits the memory for which one line of a file can ask


class _Source:
    """The JSON objects of a recording, one per line, with their line numbers."""

    def __init__(self, path: str, lines: Iterable[bytes]) -> None:
        self.path = path
        self.number = 0
        self._lines = iter(lines)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._lines:
            self.number += 1
            if len(line) > MAX_LINE_BYTES:
                raise self.wrong(f"lines of at most {MAX_LINE_BYTES} bytes", "a longer one", _AGAIN)
            if not line.endswith(b"\n"):
                raise self.wrong("a whole line", "one that was cut off", _AGAIN)
            try:
                record = parsed(line)
            except ValueError as error:
                raise self.wrong("a JSON object", str(error), _AGAIN) from None
            if type(record) is not dict:
                raise self.wrong("a JSON object", show(record), _AGAIN)
            yield record

    def wrong(self, expected: str, found: str, do: str) -> CallerError:
        return unlike(f"{self.path}:{self.number}", expected, found, do)

    def fit(self, value: object, shape: Any, at: str = "") -> Any:
        return fit(value, shape, f"{self.path}:{self.number}", _AGAIN, at)


def _header(source: _Source) -> tuple[Config, dict[str, Any]]:
    record = next(iter(source), None)
    if record is None or HEADER not in record:
        source.number = 1
        if record is not None and record.get("tape") == _FUZZ_TAPE:
            found = "a tape of hicache fuzz"
            advice = "give it to hicache fuzz --replay"
        else:
            found = "an empty file" if record is None else "another kind of file"
            advice = "give a file that hicache twin --recording wrote"
        raise source.wrong("a recording", found, advice)
    if record[HEADER] != VERSION or type(record[HEADER]) is not int:
        found = f"version {show(record[HEADER])}"
        raise source.wrong(f"a recording of version {VERSION}", found, _AGAIN)
    source.fit(record, Only({HEADER: ANY, "config": ANY, "made": Named(ANY)}))
    given, made = record["config"], record["made"]
    if type(given) is dict:
        given = {**MAY_LACK, **given}
    names = types(given.get("components")) if type(given) is dict else types(())
    if type(given) is not dict or given.keys() != names.keys():
        raise source.wrong(f"config: {', '.join(names)}", show(given), _AGAIN)
    values: dict[str, Any] = {
        name: tuple(value) if type(value) is list else value for name, value in given.items()
    }
    sizes = [one for name in ("device_pages", "host_pages") for one in _numbers(values[name])]
    if any(type(one) is float for one in values.values()) or sum(sizes) > _MOST_PAGES:
        raise source.wrong(
            f"config: whole numbers, and pools of {_MOST_PAGES} pages together at most",
            show(given),
            _AGAIN,
        )
    try:
        config = config_of(values)
        Core(config)
    except (CallerError, TypeError, ValueError, OverflowError, MemoryError) as error:
        found = f"one that fails: {error}"
        raise source.wrong("a configuration of this version", found, _AGAIN) from None
    return config, made


def _numbers(value: object) -> list[int]:
    return [one for one in value if type(one) is int] if isinstance(value, tuple) else []


def _event(source: _Source, record: dict[str, Any]) -> Step:
    op = record.get("op")
    if type(op) is not str or op not in _ARGUMENTS:
        known = ", ".join((*_ARGUMENTS, "start", "check", "end"))
        raise source.wrong(f"op: one of {known}", show(op), _AGAIN)
    shape = {"op": TEXT, "t": _SHAPES[int], "args": ANY, "d": _hex(8)}
    found = source.fit(record, Only(shape))
    (kind, names), given = _ARGUMENTS[op], found["args"]
    least = len(names) - _LEFT_OUT.get(kind, 0)
    if type(given) is not list or not least <= len(given) <= len(names):
        raise source.wrong(f"args: {least} values for {op}", show(given), _AGAIN)
    values = [_value(source, *one) for one in zip(names, names.values(), given, strict=False)]
    return Step(kind(*values), found["t"], found["d"], source.number)


def arguments(event: Event) -> list[object]:
    """The arguments of an event in the form that a line has."""
    values = list(event)
    for _ in range(_LEFT_OUT.get(type(event), 0)):
        if values[-1] == event._field_defaults[event._fields[len(values) - 1]]:
            values.pop()
    return [as_json(value) for value in values]


def as_json(value: object) -> object:
    if isinstance(value, Key):
        return [value.stride, value.namespace, base64.b64encode(value.raw).decode()]
    return int(value) if isinstance(value, Tier) else value


def _value(source: _Source, name: str, kind: type, value: Any) -> object:
    source.fit(value, _SHAPES.get(name) or _SHAPES[kind], f"args: {name}")
    if kind is Key:
        return _key(value)
    return Tier(value) if kind is Tier else value


def _key(value: Any) -> Key | None:
    kinds = [type(part) for part in value] if type(value) is list else []
    if kinds != [int, str, str] or value[0] < 1:
        return None
    try:
        raw = base64.b64decode(value[2].encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return None if len(raw) % value[0] else Key(raw, value[0], value[1])


def _hex(digits: int) -> Value:
    return Value(
        f"{digits} hexadecimal digits",
        lambda value: (
            re.fullmatch(f"[0-9a-f]{{{digits}}}", value) is not None
            if isinstance(value, str)
            else False
        ),
    )
