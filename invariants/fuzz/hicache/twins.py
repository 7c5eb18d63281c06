"""Twins of a tape: the same operations under other settings. Each must end with the same answers.

An answer is the prompt of a request, read back from its pages when it was computed. The pools
decide which requests get that far, so answers are compared if both runs have one; liveness checks
ensure that the other requests were given up properly. Adds no faults: a twin changes settings,
times, orders and the chunks and batches of prefill only. Does not play a tape (see play).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.files import show
from invariants.books.kinds import kinds_of
from invariants.fuzz.hicache.ballast import FIRST as BALLAST
from invariants.fuzz.hicache.executors import REPLIES, USUAL, device_of, settings_of, spelled
from invariants.fuzz.hicache.swarm import ORDERS, POLICIES
from invariants.fuzz.sequence import MOST_TOKENS, Act, Tape, has_storage

NOTE = "twin"  # of a tape that fails only in comparison with its twin of this name
DEVICES = ("device:2:4:2:1", "device:3:1:20:8")


class Answers(Protocol):
    """What a hand knows of each request: its prompt, and the prompt as read back."""

    prompts: dict[int, tuple[int, ...]]
    answers: dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class Twin:
    name: str
    tape: Tape


def twins(tape: Tape) -> Iterator[Twin]:
    """Yields every twin with legal settings."""
    config = tape.config
    wide = tuple(4 * pages for pages in config.device_pages)
    made: dict[str, Config | None] = {
        "wide device": _changed(config, device_pages=wide),
        "narrow device": _changed(config, device_pages=_half(config.device_pages)),
        "wide host": _changed(config, host_pages=tuple(4 * one for one in config.host_pages)),
        "narrow host": _changed(config, host_pages=_half(config.host_pages)),
        "tier off": _changed(config, host_pages=tuple(0 for _ in config.host_pages)),
        "other order of eviction": _changed(config, eviction_policy=_next(config)),
        "no short loads": _changed(config, load_threshold_pages=3),
        "one backup at once": _changed(config, max_backups=1),
    }
    if config.storage:
        made["storage off"] = _changed(config, storage=False)
        made["prefetches are not waited for"] = _changed(config, prefetch_policy="best_effort")
        made["one store at once"] = _changed(config, max_stores=1)
    for policy in POLICIES:
        made[f"policy {policy}"] = _changed(config, write_policy=policy)
    for size in (1, 2, 4):
        made[f"page of {size}"] = _paged(config, size)
    for name, changed in made.items():
        if changed is not None and changed != config:
            yield Twin(name, replace(tape, config=changed))
    for name, delay in (("prompt replies", 0), ("slow replies", 50)):
        yield Twin(name, _delayed(tape, delay))
    for name, tokens in (("prefill at once", MOST_TOKENS), ("prefill by page", config.page_size)):
        yield Twin(name, _chunked(tape, tokens))
    for order in ("time", "priority", "heavy", "starve:1:4", "pct:7:3:64"):
        if order != tape.order:
            yield Twin(f"order {order}", replace(tape, order=order))
    if tape.ranks == 1 and tape.executor == REPLIES:
        yield Twin("two ranks", replace(tape, ranks=2))
    if tape.ranks == 1 and not tape.pairs and not has_storage(tape):
        yield from _executors(tape)


def _executors(tape: Tape) -> Iterator[Twin]:
    """Yields the tape with other executors, and with its passes merged into batches or split."""
    for executor in (REPLIES, *DEVICES):
        if executor != tape.executor:
            yield Twin(f"executor {executor}", replace(tape, executor=executor))
    settings, name = settings_of(tape.executor) or USUAL, device_of(tape.executor)
    batched = settings._replace(batched=1 - settings.batched)
    yield Twin(
        "prefill in batches" if batched.batched else "prefill one by one",
        replace(tape, executor=spelled(batched, name)),
    )


def named(tape: Tape, name: str) -> Tape:
    """Returns the twin of this name. Raises CallerError if the tape has none."""
    found = next((twin.tape for twin in twins(tape) if twin.name == name), None)
    if found is None:
        raise CallerError(
            f"notes: twin: expected the name of a twin of this tape, found {show(name)}; see "
            "docs/fuzzing.md"
        )
    return found


def difference(one: Answers, other: Answers) -> str:
    """Describes the first request with the same prompt and different answers; "" if there is none.

    Prompts of faults depend on the sizes of pools, and some of `revisit` on the size of a page.
    """
    for number, answer in one.answers.items():
        if number >= BALLAST or other.prompts.get(number) != one.prompts.get(number):
            continue
        again = other.answers.get(number, answer)
        if again != answer:
            at = next(
                (
                    at
                    for at, pair in enumerate(zip(answer, again, strict=False))
                    if len({*pair}) > 1
                ),
                min(len(answer), len(again)),
            )
            return f"request {number}: another answer from token {at} on"
    return ""


def _next(config: Config) -> str:
    """Returns the next eviction policy of the folder."""
    at = ORDERS.index(config.eviction_policy) if config.eviction_policy in ORDERS else -1
    return ORDERS[(at + 1) % len(ORDERS)]


def _half(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((size + 1) // 2 for size in sizes)


def _paged(config: Config, size: int) -> Config | None:
    """Returns the configuration with another page size and room for the same tokens."""
    ratio = -(-config.page_size // size)
    device = tuple(
        pages * ratio if kind.positional else pages
        for kind, pages in zip(kinds_of(config), config.device_pages, strict=True)
    )
    return _changed(config, page_size=size, device_pages=device)


def _changed(config: Config, **changes: object) -> Config | None:
    """Returns the changed configuration, or None if it is illegal."""
    try:
        changed = replace(config, **changes)  # type: ignore[arg-type]
        Core(changed)
    except CallerError:
        return None
    return changed


def _delayed(tape: Tape, delay: int) -> Tape:
    """Returns the tape with this delay for every reply, and the same faults."""
    entries = tuple(
        one._replace(acts=tuple(Act(delay, act.tie, act.fault) for act in one.acts))
        for one in tape.entries
    )
    return replace(tape, entries=entries)


def _chunked(tape: Tape, tokens: int) -> Tape:
    """Returns the tape with chunks of at most this many tokens."""
    entries = tuple(
        one._replace(args={**one.args, "chunk": tokens}) if "chunk" in one.args else one
        for one in tape.entries
    )
    return replace(tape, entries=entries)
