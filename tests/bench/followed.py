"""Follows a replay, and writes what its engine asked of the cache as a tape for peers.

Every call of the scheduler becomes an operation, in the same order: admissions, chunks of prompts
when their passes have ended, pages for answers, preemptions, ends. A request that is refused is
looked up, as SGLang's scheduler does with the one that it cannot add.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from hicache.core.actions import Admitted, Granted, Outcome, Prefill, Refused
from hicache.core.config import Config
from hicache.core.events import AdmitWanted, Arrived, Event, Finished, PagesWanted, PrefillDone
from hicache.core.events import Retracted as Preempted
from hicache.core.types import Key
from hicache.core.view import CoreView
from hicache.runtime.driver import first_of
from invariants.fuzz.tapes.tape import Entry
from sim.engine import prefill
from traces.cli import main as hicache
from traces.replaying import timed

SCALE = 16  # tokens of the workload for one of the tape, whose rows are short
Row = dict[str, Any]


class Follower:
    """An observer of a replay. trace: what was replayed, of segments whose lengths SCALE divides.

    entries: of the tape. hits: of each request when it was first admitted, in tokens on device and
    on host. preempted: how often a request was. config: of the core.
    """

    config: Config

    def __init__(self, trace: Path) -> None:
        self.lines: list[Row] = [json.loads(line) for line in trace.read_text().splitlines()[1:]]
        self.words: dict[str, int] = {}
        self.entries: list[Entry] = []
        self.hits: dict[int, tuple[int, int]] = {}
        self.preempted = 0
        self._lengths: dict[int, int] = {}  # tokens of the tape that a request has
        self._passes: dict[int, Prefill] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        """What an event asks is known with its outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.config = view.config
        for one in outcomes:
            if isinstance(one, Prefill):
                self._passes[one.flight] = one
        if isinstance(event, Arrived):
            self._arrive(event)
        elif isinstance(event, AdmitWanted):
            self._admit(event, outcomes)
        elif isinstance(event, PrefillDone):
            self._computed(self._passes.pop(event.flight))
        elif isinstance(event, PagesWanted):
            if first_of(Granted, outcomes) is not None:
                self._grow(event.request, -(-event.length // SCALE))
        elif isinstance(event, Finished):
            self._grow(event.request, event.length // SCALE)
            self._add("finish", event.request, keep=True)
        elif isinstance(event, Preempted):
            self._grow(event.request, event.committed_tokens // SCALE)
            self._add("retract", event.request)
            self.preempted += 1

    def _add(self, op: str, request: int, **args: Any) -> None:
        self.entries.append(Entry(op, {"request": request} | args, gap=1, poll=True))

    def _arrive(self, event: Arrived) -> None:
        tokens = list[list[int]]()
        for label, length in self.lines[event.request]["input"]:
            assert length % SCALE == 0, f"segments of whole {SCALE} tokens, found {length}"
            tokens.append([self._word(label), length // SCALE])
        self._lengths[event.request] = event.length // SCALE
        self._add("arrive", event.request, tokens=tokens, space="")

    def _word(self, label: str) -> int:
        return self.words.setdefault(label, len(self.words) + 1)

    def _admit(self, event: AdmitWanted, outcomes: Sequence[Outcome]) -> None:
        if first_of(Refused, outcomes) is not None:
            self._add("match", event.request)
        found = first_of(Admitted, outcomes)
        if found is not None:
            page = self.config.page_size
            hit = found.device_pages * page, found.host_pages * page
            self.hits.setdefault(event.request, hit)
            self._add("admit", event.request, chunk=0)

    def _computed(self, one: Prefill) -> None:
        """A chunk. The last one ends the prompt, however much the other cache has hit. A request
        that the other cache has refused is asked for once more."""
        chunk = one.end_token // SCALE - one.start_token // SCALE
        if one.completes_prompt:
            chunk = self._lengths[one.request]
        self._add("admit", one.request, chunk=0)
        if chunk:
            self._add("prefill", one.request, chunk=chunk)

    def _grow(self, request: int, length: int) -> None:
        """The last token of an answer is never computed."""
        line = self.lines[request]
        segments = [*line["input"], line["output"]]
        most = (sum(tokens for _, tokens in segments) - 1) // SCALE
        more = min(length, most) - self._lengths[request]
        if more > 0:
            self._add("grow", request, more=more, word=self._word(line["output"][0]))
            self._lengths[request] += more


@contextlib.contextmanager
def followed(follower: Follower) -> Iterator[None]:
    """Adds the observer to the replays of this block, whose own ones are made inside of them."""
    build = timed.build

    def more(trace: Any, settings: Any, observers: Any, *rest: Any) -> Any:
        return build(trace, settings, (*observers, follower), *rest)

    with mock.patch.object(timed, "build", more):
        yield


@contextlib.contextmanager
def capped(pages: Mapping[int, int]) -> Iterator[None]:
    """In the replays of this block, a request hits no more pages than it has here."""

    def arrived(request: int, key: Key, length: int, most: int, priority: int) -> Arrived:
        return Arrived(request, key, length, min(most, pages[request]), priority)

    with mock.patch.object(prefill, "Arrived", arrived):
        yield


def generated(words: str, trace: Path) -> Path:
    """The trace that `hicache generate` makes of these words."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert hicache(["generate", *words.split(), "-o", str(trace)]) == 0
    return trace


def replayed(trace: Path, words: str) -> list[Row]:
    """The requests of a replay with these options, in their order."""
    requests = trace.with_name("requests.jsonl")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        options = [*words.split(), "--requests", str(requests)]
        assert hicache(["replay", str(trace), *options]) == 0
    return [json.loads(line) for line in requests.read_text().splitlines()]
