"""Draws what a vLLM is asked: lives of its process, and in each a few sequences of steps.

A life has settings (blocks of vLLM, host pages, a store and its size, tokens of a step, drafts) and
ends with `kill -9`. Its sequences ask for prompts that share their beginnings with earlier ones,
also with those of lives before, whose pages only the store has. Everything follows from the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

from traces.engines.models import VOCABULARY

ASK, DROP, FAULT = "ask", "drop", "fault"
# Faults of a store, see `faults`: in use, in use in one life of four, and while nobody has it open.
# A store that is harmed too often never hits.
LIVE, SELDOM = ("flip", "flip", "cut", "delete"), ("noise", "dead")
BETWEEN = ("", "", "", "flip", "flip", "cut", "delete", "gone")
SEQUENCES = 8  # of a life
_MOST_DOCUMENTS = 12
_DRAFTS = 3
_SALTS = ("", "", "", "", "", "one", "two")


class Request(NamedTuple):
    """prompt: tokens; after the prompt and the answer of the sequence's request number `follows`,
    if that is not -1. at_step, abort_after, abort_step: see `child.Served.generate`; 0: none."""

    prompt: tuple[int, ...]
    max_tokens: int = 4
    salt: str = ""
    follows: int = -1
    at_step: int = 0
    abort_after: int = 0
    abort_step: int = 0


class Step(NamedTuple):
    """do: ASK for several requests, DROP vLLM's own cache, or FAULT of the store, by its name."""

    do: str
    requests: tuple[Request, ...] = ()
    fault: str = ""


Sequence = tuple[Step, ...]


@dataclass(frozen=True)
class Life:
    """roomy: how much larger vLLM's pool is than the longest request. host_pages, store_pages: 0
    for no store, -1 for one without a limit. chunk: pages that a step computes at most; 0: as vLLM
    does. fault: of the store before it is opened. drafts: tokens that vLLM guesses at a time from
    the prompt and checks in one step (speculative decoding); 0: none."""

    number: int
    roomy: float
    host_pages: int
    store_pages: int
    chunk: int
    fault: str
    drafts: int
    sequences: tuple[Sequence, ...]


class Scale(NamedTuple):
    """page: tokens of a page of the connector, or of a block of vLLM. longest: of a prompt and its
    answer."""

    page: int
    longest: int


def scale_of(page: int) -> Scale:
    """Prompts of 100 to 600 tokens, longer where a page is so long that they would never hit."""
    return Scale(page, max(640, 4 * page))


def lives(seed: int, scale: Scale, faults: bool) -> Iterator[Life]:
    """Lives without end. faults: of the store."""
    documents: list[tuple[int, ...]] = []
    for number in count():
        drafts = Random(f"{seed} {number} drafts").choice((0, 0, _DRAFTS))
        yield _life(Random(f"{seed} {number}"), number, scale, documents, faults, drafts)


def _life(
    rng: Random,
    number: int,
    scale: Scale,
    documents: list[tuple[int, ...]],
    faults: bool,
    drafts: int,
) -> Life:
    kinds: tuple[str, ...] = (*LIVE, *SELDOM) if rng.random() < 0.25 else LIVE
    kinds = kinds if faults and rng.random() < 0.7 else ()
    return Life(
        number,
        rng.choice((1.05, 1.2, 2.0, 6.0)),
        rng.choice((12, 40, 200)),
        rng.choice((0, 30, -1, -1, -1)),
        rng.choice((0, 0, 2, 4)),
        rng.choice(BETWEEN) if faults else "",
        drafts,
        tuple(_sequence(rng, scale, documents, kinds) for _ in range(SEQUENCES)),
    )


def _sequence(
    rng: Random, scale: Scale, documents: list[tuple[int, ...]], kinds: tuple[str, ...]
) -> Sequence:
    for _ in range(rng.randint(1, 2)):
        documents.append(_tokens(rng, _length(rng, scale)))
        del documents[:-_MOST_DOCUMENTS]
    steps: list[Step] = []
    asked = 0
    while asked < 30:
        what = rng.random()
        if what < 0.15 and steps:
            steps.append(Step(DROP))
        elif kinds and what < 0.18 and steps:
            steps.append(Step(FAULT, fault=rng.choice(kinds)))
        else:
            several = rng.choice((1, 1, 2, 4, 6))
            chosen = tuple(_request(rng, scale, documents, asked, several) for _ in range(several))
            steps.append(Step(ASK, chosen))
            asked += several
    return tuple(steps)


def _request(
    rng: Random, scale: Scale, documents: list[tuple[int, ...]], asked: int, several: int
) -> Request:
    """asked: requests of the sequence whose answers are known. several: that are sent together."""
    aborts = rng.random() < 0.1
    made = Request(
        (),
        rng.choice((1, 2, 4, 4, 8)) if rng.random() < 0.88 else scale.page + 4,
        rng.choice(_SALTS),
        at_step=rng.choice((0, 0, 1, 3)) if several > 1 else 0,
        abort_after=rng.choice((0, 1, 2)) if aborts else 0,
        abort_step=rng.randint(1, 4) if aborts else 0,
    )
    if asked and rng.random() < 0.15:
        follows = rng.randrange(max(0, asked - 8), asked)
        return made._replace(prompt=_tokens(rng, rng.randint(1, 2 * scale.page)), follows=follows)
    return made._replace(prompt=_prompt(rng, scale, rng.choice(documents)))


def _prompt(rng: Random, scale: Scale, document: tuple[int, ...]) -> tuple[int, ...]:
    """A document, its beginning, one that goes on in another way, or with one other token."""
    kind = rng.choice(("whole", "begins", "begins", "branches", "branches", "changed", "edge"))
    page, most = scale.page, len(document)
    cut = rng.randint(1, most)
    if rng.random() < 0.5:
        cut = min(most, max(1, cut // page * page))
    if kind == "begins":
        return document[:cut]
    if kind == "branches":
        return document[:cut] + _tokens(rng, rng.randint(1, 2 * page))
    if kind == "changed":
        at = min(cut, most - 1)
        return (*document[:at], (document[at] + 1) % VOCABULARY, *document[at + 1 :])
    if kind == "edge":  # around a whole number of pages
        return document[: min(most, max(1, cut // page * page + rng.randint(-1, 1)))]
    return document


def _length(rng: Random, scale: Scale) -> int:
    most = scale.longest - 3 * scale.page
    least = min(100, most)
    length = rng.randint(least, most)
    return max(least, length // scale.page * scale.page) if rng.random() < 0.4 else length


def _tokens(rng: Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(VOCABULARY) for _ in range(count))
