"""Shrinks a failing sequence: passes in a fixed order that each try simpler ones.

    everything at once; delete requests, runs of entries; only let time pass;
    simplify replies, the configuration, prompts, arguments, names; delete pairs of entries; repeat
    while the sequence gets smaller

A simpler sequence is kept only if it fails with the same code and kind, so that one bug does not
turn into another, and only if its `weight` is less, so that the search ends. There are no random
draws: without a limit of time, the same sequence and cache give the same result.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple, Self

from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.runtime.config_document import document, replaced, settings_names, token_settings

from .sequence import DEVICE, FILES, REPLIES, Act, Entry, FuzzSequence, dumps, pack, unpack

MOST_PLAYS = 4000
FEW = 10  # up to this many entries, every pair is tried
LONG = 2000  # longer than any drawn delay
QUIET = ("wait", "quiesce")  # operations that only let time pass
FAULTS = ("", "fail", "lost", "torn", "repeated reply")  # from simple to complex; others rank last
_LAST = {"end": "none", "empty": "nothing", "space": ""}  # words: that of least effect
_FROM_ONE = ("chunk", "first", "more", "polls", "second", "slots", "steps")
_LEAST = {"behind": -1, **dict.fromkeys(_FROM_ONE, 1)}  # else 0
_NAMES = ("request", "again", "others")  # arguments that are numbers of requests

Failure = Any
Play = Callable[[FuzzSequence], Any]  # returns an outcome with a `failure`
Proposals = Callable[[FuzzSequence], Iterable[FuzzSequence]]


class Ways(NamedTuple):
    """What a target knows of simpler sequences. weight: of all but the entries; simpler: with
    another configuration; parts: what an entry of many events may be reduced to."""

    weight: Callable[[FuzzSequence], tuple[int, ...]]
    simpler: Proposals
    parts: Callable[[Entry], Iterable[Entry]] = lambda entry: ()


def ways_of_values(simpler: Callable[[Any], Iterable[Any]]) -> Ways:
    """The ways of a target whose configuration is a dict of JSON values. simpler: configurations
    that are one step simpler than one, the simplest first."""

    def weight(sequence: FuzzSequence) -> tuple[int, ...]:
        values = sequence.config.values()
        numbers = [value for value in values if type(value) in (int, float)]
        others = [value for value in values if type(value) not in (int, float)]
        return sum(map(bool, values)), len(json.dumps(others)), round(sum(map(abs, numbers)))

    def configs(sequence: FuzzSequence) -> Iterator[FuzzSequence]:
        return (replace(sequence, config=config) for config in simpler(sequence.config))

    return Ways(weight, configs)


class _Enough(Exception):
    """The limit of plays, or of time, is reached."""


class Search:
    """The smallest sequence so far, which fails with `failure`, at any time. most: plays. seconds:
    after which no further play begins. complete: everything was tried."""

    def __init__(
        self,
        sequence: FuzzSequence,
        failure: Failure,
        play: Play,
        ways: Ways,
        most: int = MOST_PLAYS,
        seconds: float = float("inf"),
    ) -> None:
        self.play, self.ways, self.most = play, ways, most
        self.due = time.monotonic() + seconds
        self.plays, self.complete = 0, False
        self.tried: set[str] = set()
        self._keep(sequence, failure)

    def run(self) -> Self:
        """Searches until nothing smaller is found. Returns itself."""
        try:
            while not self.complete:
                before = self.weight
                self._round()
                self.complete = self.weight == before
        except _Enough:
            pass
        return self

    def _keep(self, sequence: FuzzSequence, failure: Failure) -> None:
        small = replace(sequence, entries=sequence.entries[: failure.at])  # those that were played
        self.sequence, self.failure, self.weight = small, failure, weight(small, self.ways)

    def take(self, sequence: FuzzSequence) -> bool:
        """Plays a sequence, and keeps it if it is smaller and fails alike. Returns whether it was
        kept."""
        if weight(sequence, self.ways) >= self.weight or (text := dumps(sequence)) in self.tried:
            return False
        self.tried.add(text)
        if self.plays >= self.most or time.monotonic() > self.due:
            raise _Enough
        self.plays += 1
        try:
            failure = self.play(sequence).failure
        except CallerError:
            return False  # the target refuses these settings or arguments
        wanted = self.failure.code, self.failure.kind
        if failure is None or (failure.code, failure.kind) != wanted:
            return False
        self._keep(sequence, failure)
        return True

    def take_any(self, proposals: Proposals) -> None:
        """Takes simpler sequences until none of those one step simpler is kept."""
        while any(self.take(sequence) for sequence in proposals(self.sequence)):
            pass

    def take_each(self, proposals: Callable[[Entry], Iterable[Entry]]) -> None:
        """For each entry from the last, takes simpler ones until none is kept."""
        for at in reversed(range(len(self.sequence.entries))):

            def changed(sequence: FuzzSequence, at: int = at) -> Iterator[FuzzSequence]:
                return (_changed(sequence, at, entry) for entry in proposals(sequence.entries[at]))

            if at < len(self.sequence.entries):
                self.take_any(changed)

    def _round(self) -> None:
        for sequence in plain(self.sequence):  # try everything at once first
            self.take(sequence)
        self.take_any(_without_a_request)
        self._delete()
        self.take_each(lambda entry: [entry._replace(op="wait", args={"polls": 1})])
        self.take_each(_replies)
        self.take_any(self.ways.simpler)
        self.take_any(prompts)
        self.take_each(self.ways.parts)
        self.take_each(_arguments)
        self.take(names(self.sequence))
        if len(self.sequence.entries) <= FEW:
            self.take_any(self._without_pairs)

    def _delete(self) -> None:
        """Deletes runs of entries: halves, quarters, single ones."""
        size = max(1, len(self.sequence.entries) // 2)
        while True:
            end = len(self.sequence.entries)
            while end > 0:
                end = min(end, len(self.sequence.entries))
                start = max(0, end - size)
                rest = self.sequence.entries[:start] + self.sequence.entries[end:]
                self.take(replace(self.sequence, entries=rest))
                end = start
            if size == 1:
                return
            size = max(1, min(size, len(self.sequence.entries)) // 2)

    def _without_pairs(self, sequence: FuzzSequence) -> Iterator[FuzzSequence]:
        """The sequence without two entries."""
        entries = sequence.entries
        for second in reversed(range(len(entries))):
            for first in reversed(range(second)):
                head, last = entries[:first] + entries[first + 1 : second], entries[second + 1 :]
                yield replace(sequence, entries=head + last)


def weight(sequence: FuzzSequence, ways: Ways) -> tuple[int, ...]:
    """Compares the number of entries first, then faults, the configuration, the schedule,
    and the arguments."""
    entries = sequence.entries
    acts = [act for entry in entries for act in entry.acts]
    words = [unpack(entry.args["tokens"]) for entry in entries if "tokens" in entry.args]
    args = [pair for entry in entries for pair in entry.args.items() if pair[0] not in _NAMES]
    return (
        len(entries),
        sum(entry.op not in QUIET for entry in entries),
        sum(bool(act.fault) for act in acts),
        sum((*FAULTS, act.fault).index(act.fault) for act in acts),
        *ways.weight(sequence),
        int(sequence.order != "time") + len(acts) + sum(not entry.poll for entry in entries),
        sum(map(len, words)),
        sum(len(value) for name, value in args if isinstance(value, list) and name != "tokens"),
        sum(value is True or value != _LAST.get(name, value) for name, value in args),
        sum(1 + value for _, value in args if type(value) is int),
        sum(act.delay + act.tie for act in acts) + sum(entry.gap != 1 for entry in entries),
        sum(entry.gap for entry in entries),
        sum(map(sum, words)) + sum(int(entry.args.get("request", 0)) for entry in entries),
    )


def _changed(sequence: FuzzSequence, at: int, entry: Entry) -> FuzzSequence:
    return replace(sequence, entries=(*sequence.entries[:at], entry, *sequence.entries[at + 1 :]))


def plain(sequence: FuzzSequence) -> Iterator[FuzzSequence]:
    """Everything at once: plain times and no acts; the plain order; no acts; no faults."""
    entries = sequence.entries
    usual = tuple(entry._replace(acts=(), gap=1, poll=True) for entry in entries)
    yield replace(sequence, entries=usual, order="time")
    yield replace(sequence, order="time")
    yield replace(sequence, entries=tuple(entry._replace(acts=()) for entry in entries))
    yield replace(sequence, entries=tuple(_without_faults(entry) for entry in entries))


def _without_a_request(sequence: FuzzSequence) -> Iterator[FuzzSequence]:
    requests = dict.fromkeys(entry.args.get("request") for entry in sequence.entries)
    for request in reversed([request for request in requests if request is not None]):
        kept = [entry for entry in sequence.entries if entry.args.get("request") != request]
        yield replace(sequence, entries=tuple(kept))


def _without_faults(entry: Entry) -> Entry:
    return entry._replace(acts=tuple(act._replace(fault="") for act in entry.acts))


def _replies(entry: Entry) -> Iterator[Entry]:
    """Without faults, or with simpler ones; simpler gaps, polls, delays and ties."""
    yield entry._replace(gap=1, poll=True, acts=())
    yield entry._replace(acts=())
    yield _without_faults(entry)
    for act in entry.acts:
        yield entry._replace(acts=(act,))
    for size in range(2, len(entry.acts)):  # different ranks need as many acts
        yield entry._replace(acts=entry.acts[:size])
    for turn, act in enumerate(entry.acts):
        simpler = [act._replace(fault=fault) for fault in FAULTS if act.fault]
        simpler += [Act(delay, 0, act.fault) for delay in (0, 1, 10, LONG)]
        for each in simpler:
            yield entry._replace(acts=(*entry.acts[:turn], each, *entry.acts[turn + 1 :]))
    yield entry._replace(poll=True)
    for gap in (1, 0, 5, entry.gap // 2):
        yield entry._replace(gap=gap)


def prompts(sequence: FuzzSequence) -> Iterator[FuzzSequence]:
    """Shorter prompts: all alike, so that they share the same pages; then each by itself."""
    every = [at for at, entry in enumerate(sequence.entries) if "tokens" in entry.args]
    for which in (every, *([at] for at in reversed(every))):
        tokens = {at: unpack(sequence.entries[at].args["tokens"]) for at in which}
        longest = max(map(len, tokens.values()), default=0)
        stretch = longest // 2
        while stretch:
            for start in range(longest - stretch, -1, -stretch):
                shorter = sequence
                for at, row in tokens.items():
                    left = row[:start] + row[start + stretch :]
                    shorter = _with_tokens(shorter, at, left or row)
                yield shorter
            stretch //= 2


def _with_tokens(sequence: FuzzSequence, at: int, tokens: list[int]) -> FuzzSequence:
    entry = sequence.entries[at]
    return _changed(sequence, at, entry._replace(args=entry.args | {"tokens": pack(tokens)}))


def _arguments(entry: Entry) -> Iterator[Entry]:
    """Shorter lists, words of less effect, flags off, smaller numbers."""
    for name, value in entry.args.items():
        values: Iterable[Any] = ()
        if isinstance(value, list) and name != "tokens":
            cuts = range(len(value))
            values = [part for at in cuts for part in (value[:at], value[:at] + value[at + 1 :])]
        elif name in _LAST:
            values = [_LAST[name]]
        elif value is True:
            values = [False]
        elif type(value) is int and name not in _NAMES:
            less = dict.fromkeys((-1, 0, 1, value // 2, value - 1))
            values = [number for number in less if _LEAST.get(name, 0) <= number < value]
        for item in values:
            yield entry._replace(args=entry.args | {name: item})


def names(sequence: FuzzSequence) -> FuzzSequence:
    """Renumbers requests in order of arrival, and tokens in order of use, from 0."""
    numbers: dict[Any, int] = {}
    words: dict[Any, int] = {}

    def new(value: Any) -> Any:
        many = isinstance(value, list)
        return [*map(new, value)] if many else numbers.setdefault(value, len(numbers))

    entries = []
    for entry in sequence.entries:
        args = {name: new(value) if name in _NAMES else value for name, value in entry.args.items()}
        if "tokens" in args:
            row = [words.setdefault(token, len(words)) for token in unpack(args["tokens"])]
            args["tokens"] = pack(row)
        entries.append(entry._replace(args=args))
    return replace(sequence, entries=tuple(entries))


# -- ways of our core: simpler configurations and executors, and operations of many events

_EXECUTORS = (REPLIES, DEVICE, FILES)  # from simple to complex; other devices rank last
_SHAPE = ("page_size", "device_pages", "host_pages", "components", "settings")
_USUAL = {field.name: field.default for field in fields(Config) if field.name not in _SHAPE}


def _unusual(values: dict[str, Any]) -> dict[str, Any]:
    """The settings beside sizes and components that are not at their defaults, with these."""
    usual = {name: _USUAL.get(name, 0) for name in values if name not in _SHAPE}
    return {name: value for name, value in usual.items() if values[name] != value}


def _weight(sequence: FuzzSequence) -> tuple[int, ...]:
    config, values = sequence.config, document(sequence.config)
    return (
        sequence.ranks,
        len(config.components),
        config.page_size,
        len(_unusual(values)),
        sum(config.host_pages) + sum(config.device_pages),
        sum(values[name] for name in token_settings(config)),
        _EXECUTORS.index(sequence.executor) if sequence.executor in _EXECUTORS else len(_EXECUTORS),
        sequence.pairs,
    )


def _parts(entry: Entry) -> Iterator[Entry]:
    """Taking all replies, or all pages, or one of several operations."""
    yield entry._replace(op="quiesce", args={})
    if entry.op == "several":
        yield entry._replace(op="hoard", args={"take": True})
        for name, args in entry.args["steps"]:
            yield entry._replace(op=name, args=args)


def _simpler(sequence: FuzzSequence) -> Iterator[FuzzSequence]:
    """Fewer ranks, no pairs, fewer components, smaller pages, default settings, smaller pools, a
    simpler executor."""
    config: Config = sequence.config
    values = document(config)
    for ranks in range(1, sequence.ranks):
        yield replace(sequence, ranks=ranks)
    if sequence.pairs:
        yield replace(sequence, pairs=False)
    for index in range(1, len(config.components)):
        yield from _with(sequence, _without_component(config, index))
    for page in (1, 2, 4):
        if page < config.page_size:
            yield from _with(sequence, {"page_size": page})
    for name, usual in _unusual(values).items():
        yield from _with(sequence, {name: usual})
    yield from _with(sequence, {"host_pages": (0,) * len(config.components)})
    for name in ("host_pages", "device_pages"):
        sizes = getattr(config, name)
        for index, size in enumerate(sizes):
            for less in dict.fromkeys((0, 1, 2, 3, 4, size // 2, size - 2, size - 1)):
                if 0 <= less < size:
                    yield from _with(sequence, {name: (*sizes[:index], less, *sizes[index + 1 :])})
    for name in token_settings(config):
        value = values[name]
        for less in dict.fromkeys((1, config.page_size, value // 2, value - 1)):
            if 0 < less < value:
                yield from _with(sequence, {name: less})
    for executor in (REPLIES, *((DEVICE,) if sequence.executor != FILES else ())):
        yield replace(sequence, executor=executor)


def _with(sequence: FuzzSequence, settings: dict[str, Any]) -> Iterator[FuzzSequence]:
    """The sequence with other settings, if they are legal."""
    try:
        yield replace(sequence, config=replaced(sequence.config, settings))
    except CallerError:
        return


def _without_component(config: Config, index: int) -> dict[str, Any]:
    """The settings without a component, and without the settings of the component."""
    settings: dict[str, Any] = dict.fromkeys(settings_names(config.components[index]), 0)
    for key in ("components", "device_pages", "host_pages"):
        values = getattr(config, key)
        settings[key] = values[:index] + values[index + 1 :]
    return settings


WAYS = Ways(_weight, _simpler, _parts)
