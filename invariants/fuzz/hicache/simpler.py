"""Defines simpler tapes: the weight of a tape, and the tapes one step simpler.

Lives here: an order of tapes, and proposals. Most proposals no longer fail and some have a greater
weight, so the caller compares them. Does not play tapes or choose proposals (see shrink).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.runtime.config_document import document, replaced, settings_names, token_settings
from invariants.fuzz.hicache.executors import PLAIN, REPLIES, device_of, settings_of, spelled
from invariants.fuzz.hicache.ops.plans import ENDS, REVISIT_ARGS
from invariants.fuzz.hicache.ops.requests import ARRIVE_ARGS
from invariants.fuzz.hicache.ops.storage import EMPTY
from invariants.fuzz.sequence import Act, Entry, Tape, pack, unpack

LONG = 2000  # longer than any drawn delay
QUIET = (Entry("wait", {"polls": 1}), Entry("quiesce", {}))  # entries that only let time pass
FAULTS = ("fail", "lost", "torn", "repeated reply")  # from simple to complex; others rank last
_SEVERAL = ("", "revisit", "interrupt", "warm")  # operations of many events, from simple to complex
_LISTS = ("others", "steps", "then")  # optional arguments
_AMOUNTS = ("chunk", "more", "ahead", "behind", "pages", "polls", "late", "way", "word")
_LAST = {"end": ENDS[-1], "empty": EMPTY[-1]}  # what does nothing
_LEAST = {"behind": -1, "chunk": 1, "more": 1, "polls": 1}  # 0 for the others
_SIZES = ("chunk", "more", "ahead", "behind")  # arguments in tokens
_SHAPE = ("page_size", "device_pages", "host_pages", "components", "settings")
_USUAL = {one.name: one.default for one in fields(Config) if one.name not in _SHAPE}

Weight = tuple[int, ...]


def _usual(said: dict[str, Any]) -> dict[str, Any]:
    """The default of each setting, without sizes and components."""
    others = [name for name in said if name not in _SHAPE and name not in _USUAL]
    return _USUAL | dict.fromkeys(others, 0)


def weight(tape: Tape) -> Weight:
    """The weight of a tape, which compares the number of entries first, then faults, ranks, the
    size of the core, the schedule, and the arguments.
    """
    config, entries = tape.config, tape.entries
    said = document(config)
    acts = [act for entry in entries for act in entry.acts]
    words = [unpack(entry.args["tokens"]) for entry in entries if "tokens" in entry.args]
    return (
        len(entries),
        sum(entry.op not in {one.op for one in QUIET} for entry in entries),
        sum(_SEVERAL.index(entry.op) for entry in entries if entry.op in _SEVERAL),
        sum(bool(act.fault) for act in acts),
        sum(_rank(act.fault) for act in acts),
        tape.ranks,
        len(config.components),
        config.page_size,
        sum(said[name] != usual for name, usual in _usual(said).items()),
        sum(config.host_pages) + sum(config.device_pages),
        sum(said[name] for name in token_settings(config)),
        _devices(tape.executor),
        int(tape.order != "time") + tape.pairs,
        sum(not entry.poll for entry in entries),
        len(acts),
        sum(len(tokens) for tokens in words),
        sum(len(entry.args.get(name, ())) for entry in entries for name in _LISTS),
        sum(len(_does(entry)) for entry in entries),
        sum(bool(entry.args.get("space")) + bool(entry.args.get("whole")) for entry in entries),
        sum(
            max(0, int(entry.args[name]) - _LEAST.get(name, 0))
            for entry in entries
            for name in _AMOUNTS
            if name in entry.args
        ),
        sum(act.delay + act.tie for act in acts) + sum(entry.gap != 1 for entry in entries),
        sum(entry.gap for entry in entries),
        sum(sum(tokens) for tokens in words),
        sum(int(entry.args.get("request", 0)) for entry in entries),
    )


def _devices(executor: str) -> int:
    """0 for plain replies, else 1 plus the distance of the device from a plain one; more with real
    bytes.
    """
    settings = settings_of(executor)
    if settings is None:
        return 0
    distance = sum(abs(a - b) for a, b in zip(settings, PLAIN, strict=True))
    return 1 + distance + (bool(device_of(executor)) << 40)


def _rank(fault: str) -> int:
    return ("", *FAULTS, fault).index(fault)


def changed(tape: Tape, at: int, entry: Entry) -> Tape:
    return replace(tape, entries=(*tape.entries[:at], entry, *tape.entries[at + 1 :]))


def plain(tape: Tape) -> Iterator[Tape]:
    """Simplifies everything at once: fewer ranks; no acts and plain times; no token pairs; no acts;
    no faults.
    """

    def every(make: Callable[[Entry], Entry]) -> Tape:
        return replace(tape, entries=tuple(map(make, tape.entries)))

    for ranks in range(1, tape.ranks):
        yield replace(tape, ranks=ranks)
    yield replace(every(lambda entry: entry._replace(acts=(), gap=1, poll=True)), order="time")
    if tape.pairs:
        yield replace(tape, pairs=False)
    yield every(lambda entry: entry._replace(acts=()))
    yield every(lambda entry: entry._replace(acts=tuple(Act(*act[:2]) for act in entry.acts)))


def quiet(tape: Tape, at: int) -> Iterator[Tape]:
    """Replaces entry `at` by one that only lets time pass."""
    for one in QUIET:
        yield changed(tape, at, tape.entries[at]._replace(op=one.op, args=dict(one.args)))


def instead(tape: Tape, at: int) -> Iterator[Entry]:
    """Yields direct replacements for entry `at`: the eviction of one page of a component, or the
    abort of a request.
    """
    entry, config = tape.entries[at], tape.config
    for tier, sizes in enumerate((config.device_pages, config.host_pages)):
        for name, size in zip(config.components, sizes, strict=True):
            if size:
                args = {"tier": tier, "component": name, "pages": 1}
                yield entry._replace(op="evict", args=args)
    for request in dict.fromkeys(one.args.get("request") for one in tape.entries[:at]):
        if request is not None:
            yield entry._replace(op="abort", args={"request": request})


def faults(tape: Tape, at: int) -> Iterator[Tape]:
    """Removes the faults of entry `at`: all, then one by one, then replaces them by simpler
    ones.
    """
    entry = tape.entries[at]
    if not any(act.fault for act in entry.acts):
        return
    yield changed(tape, at, entry._replace(acts=()))
    yield changed(tape, at, entry._replace(acts=tuple(Act(*act[:2]) for act in entry.acts)))
    for turn, act in enumerate(entry.acts):
        if act.fault:
            for fault in ("", *FAULTS):
                acts = (*entry.acts[:turn], act._replace(fault=fault), *entry.acts[turn + 1 :])
                yield changed(tape, at, entry._replace(acts=acts))


def schedules(tape: Tape, at: int) -> Iterator[Tape]:
    """Simplifies the gap, poll, delays and ties of entry `at`."""
    entry = tape.entries[at]
    yield changed(tape, at, entry._replace(gap=1, poll=True, acts=()))
    for one in dict.fromkeys(entry.acts):
        yield changed(tape, at, entry._replace(gap=1, poll=True, acts=(one._replace(tie=0),)))
        yield changed(tape, at, entry._replace(acts=(one,)))
    for size in range(2, len(entry.acts)):  # different ranks need as many acts
        yield changed(tape, at, entry._replace(acts=entry.acts[:size]))
    for turn, act in enumerate(entry.acts):
        for delay in (0, 1):
            acts = (*entry.acts[:turn], Act(delay, 0, act.fault), *entry.acts[turn + 1 :])
            yield changed(tape, at, entry._replace(acts=acts))
    yield changed(tape, at, entry._replace(acts=()))
    yield changed(tape, at, entry._replace(poll=True))
    for gap in (1, 0, 5, entry.gap // 2):
        yield changed(tape, at, entry._replace(gap=gap))
    for delay in (1, 0, 10, LONG):
        acts = tuple(act._replace(delay=delay, tie=0) for act in entry.acts)
        yield changed(tape, at, entry._replace(acts=acts))


def executors(tape: Tape) -> Iterator[Tape]:
    """Simplifies the executor: replies, the simulated device, a plain device or a plainer one."""
    settings = settings_of(tape.executor)
    if settings is None:
        return
    name = device_of(tape.executor)
    yield replace(tape, executor=REPLIES)
    if name:
        yield replace(tape, executor=spelled(settings))
    yield replace(tape, executor=spelled(PLAIN, name))
    for field, plain in PLAIN._asdict().items():
        for value in (plain, (plain + getattr(settings, field)) // 2):
            made = settings._replace(**{field: value})
            yield replace(tape, executor=spelled(made, name))


# -- configuration


def configurations(tape: Tape) -> Iterator[Tape]:
    """Simplifies the configuration: fewer components, smaller pages, default settings, smaller
    pools.
    """
    config = tape.config
    for index in range(1, len(config.components)):
        yield from _with(tape, _without_component(config, index))
    for page in (1, 2, 4):
        if page < config.page_size:
            yield from _rescaled(tape, page)
            yield from _with(tape, {"page_size": page})
    said = document(config)
    for name, usual in _usual(said).items():
        if said[name] != usual:
            yield from _with(tape, {name: usual})
    yield from _with(tape, {"host_pages": (0,) * len(config.components)})
    for name in ("host_pages", "device_pages"):
        sizes = getattr(config, name)
        for index, size in enumerate(sizes):
            for less in dict.fromkeys((0, 1, 2, 3, 4, size // 2, size - 2, size - 1)):
                if 0 <= less < size:
                    yield from _with(tape, {name: (*sizes[:index], less, *sizes[index + 1 :])})
    for name in token_settings(config):
        value = said[name]
        for less in dict.fromkeys((1, config.page_size, value // 2, value - 1)):
            if 0 < less < value:
                yield from _with(tape, {name: less})


def _with(tape: Tape, settings: dict[str, Any]) -> Iterator[Tape]:
    """Yields the tape with other settings, if they are legal."""
    try:
        yield replace(tape, config=replaced(tape.config, settings))
    except CallerError:
        return


def _without_component(config: Config, index: int) -> dict[str, Any]:
    """Returns the settings without a component, and without the settings of the component."""
    name = config.components[index]
    settings: dict[str, Any] = dict.fromkeys(settings_names(name), 0)
    for key in ("components", "device_pages", "host_pages"):
        values = getattr(config, key)
        settings[key] = values[:index] + values[index + 1 :]
    return settings


def _rescaled(tape: Tape, page: int) -> Iterator[Tape]:
    """Yields the tape with smaller pages. All numbers of tokens are scaled, so that the number of
    full pages stays the same.
    """
    config = tape.config
    old: int = config.page_size

    def whole(tokens: int) -> int:
        return -(-tokens * page // old)

    for settings in _with(
        tape,
        {
            "page_size": page,
            **{name: whole(document(config)[name]) for name in token_settings(config)},
        },
    ):
        for rounded in (
            whole,
            lambda tokens: max(1, tokens * page // old),
            lambda tokens: tokens // old * page + min(page - 1, tokens % old) or 1,
        ):
            entries = tuple(_rescaled_entry(entry, old, page, rounded) for entry in tape.entries)
            yield replace(settings, entries=entries)


def _rescaled_entry(entry: Entry, old: int, page: int, rounded: Callable[[int], int]) -> Entry:
    args = dict(entry.args)
    if "tokens" in args:
        tokens = unpack(args["tokens"])
        size = rounded(len(tokens))
        args["tokens"] = pack(
            [tokens[min(at * old // page, len(tokens) - 1)] for at in range(size)]
        )
    for name in _SIZES:
        if int(args.get(name, 0)) > 0:
            args[name] = rounded(int(args[name]))
    return entry._replace(args=args)


# -- arguments


def prompts(tape: Tape) -> Iterator[Tape]:
    """Shortens all prompts alike, so that they share the same pages; then each by itself."""
    every = [at for at, entry in enumerate(tape.entries) if "tokens" in entry.args]
    longest = max((len(_tokens(tape, at)) for at in every), default=0)
    yield from _shortened(tape, every, longest)
    for at in reversed(every):
        yield from _shortened(tape, [at], len(_tokens(tape, at)))


def _tokens(tape: Tape, at: int) -> list[int]:
    return unpack(tape.entries[at].args["tokens"])


def _shortened(tape: Tape, which: list[int], longest: int) -> Iterator[Tape]:
    """Yields the prompts without their ends, then without runs in the middle."""
    stretch = longest // 2
    while stretch:
        for start in range(longest - stretch, -1, -stretch):
            yield _without_tokens(tape, which, start, start + stretch)
        stretch //= 2


def _without_tokens(tape: Tape, which: list[int], start: int, end: int) -> Tape:
    for at in which:
        tokens = _tokens(tape, at)
        left = tokens[:start] + tokens[end:]
        if left:
            entry = tape.entries[at]
            tape = changed(tape, at, entry._replace(args=entry.args | {"tokens": pack(left)}))
    return tape


def arguments(tape: Tape, at: int) -> Iterator[Tape]:
    """Keeps the first part of an operation of many events, then reduces the arguments of entry
    `at`.
    """
    entry = tape.entries[at]
    for part, schema in (("arrive", ARRIVE_ARGS), ("revisit", REVISIT_ARGS)):
        if entry.op in _SEVERAL and entry.op != part:
            args = {name: value for name, value in entry.args.items() if name in schema}
            yield changed(tape, at, entry._replace(op=part, args=args))

    def given(**args: Any) -> Tape:
        return changed(tape, at, entry._replace(args=entry.args | args))

    for name in _LISTS:
        words = entry.args.get(name, [])
        for one in range(len(words)):
            yield given(**{name: words[:one]})
            yield given(**{name: words[:one] + words[one + 1 :]})
    for name in _does(entry):
        yield given(**{name: _LAST[name]})
    if entry.args.get("space"):
        yield given(space="")
    if entry.args.get("whole"):
        yield given(whole=False)
    for name in _AMOUNTS:
        value = entry.args.get(name)
        if isinstance(value, int):
            least = _LEAST.get(name, 0)
            for less in dict.fromkeys((least, 0, 1, value // 2, value - 1)):
                if least <= less < value:
                    yield given(**{name: less})


def _does(entry: Entry) -> list[str]:
    """The arguments that say how a request ends, or what is emptied."""
    return [name for name, none in _LAST.items() if entry.args.get(name, none) != none]


def _renumbered(entry: Entry, numbers: dict[int, int]) -> dict[str, Any]:
    args = entry.args
    found: dict[str, Any] = {
        name: numbers[args[name]] for name in ("request", "again") if name in args
    }
    if "others" in args:
        found["others"] = [numbers[one] for one in args["others"]]
    return found


def _numbers(entry: Entry) -> tuple[int, ...]:
    """The numbers of requests in an entry."""
    args = entry.args
    again = (args["again"],) if "again" in args else ()
    return (args["request"], *args.get("others", ()), *again)


def names(tape: Tape) -> Iterator[Tape]:
    """Renumbers requests in order of arrival, and words in order of use, from 0."""
    found = [
        number for entry in tape.entries if "request" in entry.args for number in _numbers(entry)
    ]
    numbers = {old: new for new, old in enumerate(dict.fromkeys(found))}
    yield replace(
        tape,
        entries=tuple(
            entry._replace(args=entry.args | _renumbered(entry, numbers))
            if "request" in entry.args
            else entry
            for entry in tape.entries
        ),
    )
    every = [at for at, entry in enumerate(tape.entries) if "tokens" in entry.args]
    flat = [word for at in every for word in _tokens(tape, at)]
    words = {old: new for new, old in enumerate(dict.fromkeys(flat))}
    for at in every:
        entry = tape.entries[at]
        renamed = pack([words[word] for word in _tokens(tape, at)])
        tape = changed(tape, at, entry._replace(args=entry.args | {"tokens": renamed}))
    yield tape
