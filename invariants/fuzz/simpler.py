"""Simpler tapes of a peer: their weight, and one round of the search for a smaller one.

What entries have in common with other tapes is made simpler by invariants/fuzz/simpler; a
configuration, by the peer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from invariants.fuzz.hicache import simpler
from invariants.fuzz.sequence import Entry, Tape, dumps, unpack
from invariants.fuzz.shrink import FEW, Search, Ways, delete
from invariants.fuzz.target import Peer

_AMOUNTS = {"chunk": 1, "more": 1, "word": 0, "polls": 0, "slots": 1, "steps": 1}  # the least


def weight(tape: Tape) -> tuple[int, ...]:
    """Compares the number of entries first, then faults, the configuration, the schedule, and the
    arguments."""
    entries = tape.entries
    acts = [act for entry in entries for act in entry.acts]
    prompts = [unpack(entry.args["tokens"]) for entry in entries if "tokens" in entry.args]
    numbers = [one for one in tape.config.values() if type(one) in (int, float)]
    return (
        len(entries),
        sum(entry.op != "wait" for entry in entries),
        sum(bool(act.fault) for act in acts),
        sum(bool(one) for one in tape.config.values()),
        sum(len(json.dumps(one)) for one in tape.config.values() if type(one) not in (int, float)),
        round(sum(map(abs, numbers))),
        int(tape.order != "time"),
        sum(not entry.poll for entry in entries),
        len(acts),
        sum(map(len, prompts)),
        sum(bool(entry.args.get("space")) for entry in entries),
        sum(int(entry.args.get(name, 0)) for entry in entries for name in _AMOUNTS),
        sum(act.delay + act.tie for act in acts) + sum(entry.gap != 1 for entry in entries),
        sum(entry.gap for entry in entries),
        sum(map(sum, prompts)),
        sum(int(entry.args.get("request", 0)) for entry in entries),
    )


def ways(kind: type[Peer]) -> Ways:
    """How tapes of this peer get simpler."""

    def configurations(tape: Tape) -> Iterator[Tape]:
        for config in kind.simpler(tape.config):
            yield replace(tape, config=config)

    def passes(search: Search) -> None:
        for tape in _plain(search.tape):
            search.take(tape)
        delete(search)
        search.take_each(_quiet)
        search.take_each(simpler.faults)
        search.take_any(configurations)
        search.take(replace(search.tape, order="time"))
        search.take_each(simpler.schedules)
        search.take_any(simpler.prompts)
        search.take_each(_arguments)
        search.take_any(simpler.names)
        if len(search.tape.entries) <= FEW:
            search.take_any(_without_pairs)

    return Ways(weight, dumps, passes)


def _plain(tape: Tape) -> Iterator[Tape]:
    entries = tape.entries
    plain = tuple(one._replace(acts=(), gap=1, poll=True) for one in entries)
    yield replace(tape, entries=plain, order="time")
    yield replace(tape, entries=tuple(one._replace(acts=()) for one in entries))


def _quiet(tape: Tape, at: int) -> Iterator[Tape]:
    """Only lets time pass in place of entry `at`."""
    wait = tape.entries[at]._replace(op="wait", args={"polls": 1})
    yield replace(tape, entries=(*tape.entries[:at], wait, *tape.entries[at + 1 :]))


def _arguments(tape: Tape, at: int) -> Iterator[Tape]:
    entry = tape.entries[at]

    def given(**args: object) -> Tape:
        new = entry._replace(args=entry.args | args)
        return replace(tape, entries=(*tape.entries[:at], new, *tape.entries[at + 1 :]))

    if entry.args.get("space"):
        yield given(space="")
    for name, least in _AMOUNTS.items():
        value = entry.args.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            for less in dict.fromkeys((0, 1, value // 2, value - 1)):
                if least <= less < value:
                    yield given(**{name: less})


def _without_pairs(tape: Tape) -> Iterator[Tape]:
    """Without two entries, or with the abort of a request instead of them."""
    entries = tape.entries
    requests = dict.fromkeys(one.args["request"] for one in entries if "request" in one.args)
    for second in reversed(range(len(entries))):
        for first in reversed(range(second)):
            head, last = entries[:first] + entries[first + 1 : second], entries[second + 1 :]
            yield replace(tape, entries=head + last)
            for request in requests:
                other = Entry("abort", {"request": request})
                yield replace(tape, entries=(*head, other, *last))
