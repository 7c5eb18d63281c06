"""A hand with a model: passes are real, and their logits must be those of a run without a cache.

A good pass runs when its reply is taken, and a decode step when its token is generated; all of
their past comes from pages. Copies are made at their issue (even tie) or as late as possible (odd
tie), and layer by layer where a pass reads them first. Operations, faults and checks are those of
the plain hand. Does not judge logits (see oracle) or move bytes (see memory and shelf).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

import torch

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Granted,
    Load,
    Outcome,
    Prefill,
    Refused,
    Restarted,
    StateSlots,
)
from hicache.core.components.base import residency
from hicache.core.errors import About
from hicache.core.events import Aborted, Event, FetchDone, Finished, Flushed, Retracted
from hicache.core.types import Pages, Tier
from hicache.runtime.driver import Driver
from hicache.transformers.passes import Passes, RunningSequence
from invariants.base import Deviation
from invariants.fuzz.faults.base import kind_of
from invariants.fuzz.hand import Hand
from invariants.fuzz.records import Job, Pending
from invariants.fuzz.tapes.tape import Tape
from invariants.watch import Watch

from .culprit import Culprit, Read, culprit
from .memory import FreedPages, Memory
from .oracle import Verdict
from .shelf import StoredShelf
from .subjects import Subject

_TOKEN, _POSITION = 31, 7  # primes to the vocabulary
RULE = "LOGITS: A pass over cached pages gives the logits of a run without a cache."


class Figures(NamedTuple):
    """What a hand has seen. requests: those of which a pass ran. paths: passes, and what requests
    reused, by name. difference, bounds: the largest one of an accepted comparison, and in bounds.
    bound: of the model of that comparison.
    unstable: the largest one that an unstable model explains. wrong: of the comparison that failed,
    in bounds.
    """

    requests: int
    paths: Counter[str]
    difference: float
    bounds: float
    bound: float
    unstable: float
    wrong: float


class _Worst:
    """The comparisons with the largest difference: of accepted ones, of unstable ones, and the
    wrong one."""

    def __init__(self) -> None:
        self.difference = self.bounds = self.bound = 0.0
        self.unstable = self.wrong = 0.0

    def add(self, verdict: Verdict) -> None:
        if verdict.kind == "wrong":
            self.wrong = verdict.bounds
        elif verdict.kind == "unstable":
            self.unstable = max(self.unstable, verdict.difference)
        elif verdict.bounds >= self.bounds:
            self.difference, self.bounds = verdict.difference, verdict.bounds
            self.bound = verdict.bound


def _blamed(found: Culprit | None) -> str:
    """What is told of a wrong page."""
    if found is None:
        return ""
    place = "the state that it continues" if found.at < 0 else f"page {found.at} of the request"
    return f"; {place}, {found.component} page {found.page}, is wrong in pool {found.pool}"


class ModelHand(Hand):
    """Plays on one core and one model. Without checks (level "off"), only logits judge.

    paths: passes, and what requests reused, by name. computes: whether the model runs at all;
    else only the checks judge, and no pass is counted.
    """

    computes = True

    def __init__(self, tape: Tape, subject: Subject, watch: Watch | None = None) -> None:
        """Raises CallerError for a configuration that the model cannot have."""
        subject.check(tape.config)
        watched = watch is None or watch.level != "off"
        super().__init__(tape.config, tape.order, watch, remember=watched)
        self.subject = subject
        self._described = described = subject.described(tape.config.page_size)
        self.memory = Memory(tape.config, described, tape.seed)
        name = subject.settings.executor
        self.stored = StoredShelf(tape.config, described.model, self.memory, name)
        self.shelf = self.stored
        self.passes = Passes(subject.models[0], described, self.memory.arena, subject.draft)
        # by component with pages, the tokens that a token attends to with itself; 0 for all
        self._windows = {
            name: described.window_tokens if residency(name) == "window" else 0
            for name in described.components
            if residency(name) != "state"
        }
        self.paths: Counter[str] = Counter()
        self.worst = _Worst()
        self._passed: set[int] = set()  # requests of which a pass ran
        self._jumped: set[int] = set()  # and of which a comparison was unstable
        self._sequences: dict[int, RunningSequence] = {}
        self._tables: dict[int, tuple[Pages, ...]] = {}
        self._states: dict[int, tuple[StateSlots, ...]] = {}
        observers = (self.watch, self.probes, self.gauges, FreedPages(self.memory))
        self._driver = Driver(self.core, self, observers)

    # -- the core

    def feed(self, event: Event) -> list[Outcome]:
        if isinstance(event, Retracted | Aborted | Finished):
            self._sequences.pop(event.request, None)
        outcomes = super().feed(event)
        if isinstance(event, Flushed) and not any(isinstance(one, Refused) for one in outcomes):
            self._restart()
        elif isinstance(event, FetchDone):
            self.paths["storage"] += event.pages > 0
        return outcomes

    def see(self, item: Outcome) -> None:
        super().see(item)
        if isinstance(item, Prefill | Granted | Cached):
            self._tables[item.request] = item.tables
            self._states[item.request] = item.states
        elif isinstance(item, Restarted):
            self._sequences.pop(item.request, None)
        elif isinstance(item, Admitted):
            self.paths["device"] += item.device_pages > 0
            self.paths["host"] += any(item.loaded_pages)

    def _restart(self) -> None:
        """The cache is empty, as after a start of the process: only storage has something."""
        self.paths["restarts"] += 1
        self.stored.restart()

    # -- copies

    def carry_out(self, one: Pending, tie: int) -> None:
        action = one.action
        if not isinstance(action, Load | Backup):
            return
        if tie % 2 == 0 and kind_of(one.fault, type(action).__name__).fine:
            self.memory.submit(action)

    def finish(self) -> None:
        """Starts the copies that the operation has issued early, as one batch, and waits for
        them."""
        self.memory.start_early()
        super().finish()

    def _end_copy(
        self,
        action: Load | Backup,
        tier: Tier,
        fine: bool,
        arrives: Callable[[int, int], bool],
    ) -> None:
        super()._end_copy(action, tier, fine, arrives)
        if fine:
            self.memory.finish(action)
        else:
            self.memory.fail(action, arrives)

    # -- passes

    def _end_pass(self, action: Prefill, fine: bool) -> bool:
        job = self.jobs.get(action.request)
        there = job is not None and action.flight in job.flights
        fine = super()._end_pass(action, fine)
        if job is not None and there and fine:
            if self.computes:
                self._run(job, action)
        else:
            self.memory.spoil_pass(action)
        return fine

    def _run(self, job: Job, action: Prefill) -> None:
        """Runs a pass while its loads arrive."""
        for one in self.pending:
            if one.number in action.after and isinstance(one.action, Load):
                self.memory.submit(one.action)
        self.memory.start()
        tokens = self._words(job, job.tokens)
        self._check_there(job, action.start_token, action.tables, f"prefill {action.flight}")
        sequence = self._sequences.setdefault(job.id, self.passes.sequence())
        arrive = self.memory.arriving(action.after)
        logits = self.passes.prefill(sequence, tokens, action, arrive)
        self.memory.wait(Load)
        self.paths["states"] += any(slots.source >= 0 for slots in action.states)
        where = f"prefill {action.flight}"
        span = (action.start_token, action.end_token)
        self._judge(job, tokens, span, logits, where, (action.tables, action.states))

    def decode(self, job: Job, ids: list[int], tokens: list[int], span: tuple[int, int]) -> None:
        super().decode(job, ids, tokens, span)
        if not self.computes:
            return
        known = self._words(job, tokens)
        for end in range(span[0] + 1, span[1] + 1):
            sequence = self._sequences[job.id]
            tables, states = self._tables[job.id], self._states[job.id]
            self._check_there(job, end - 1, tables, "decode")
            logits = self.passes.decode(sequence, known[:end], tables, states)
            self._judge(job, known, (end - 1, end), logits, "decode", (tables, states))

    def _check_there(self, job: Job, first: int, tables: Sequence[Pages], where: str) -> None:
        """Raises Deviation if a pass from token `first` on needs a page that the request does not
        have."""
        size = self.config.page_size
        for name, table in zip(self._windows, tables, strict=True):
            least = max(0, first - self._windows[name] + 1) if self._windows[name] else 0
            for page in range(least // size, -(-first // size)):
                if table[page] < 0:
                    raise Deviation(
                        f"LOGITS {self.subject.settings.family}",
                        f"{RULE}\n    request {job.id}, {where} from token {first} on: expected "
                        f"{name} at page {page}, which the model reads, found none",
                        About("request", job.id),
                    )

    def _words(self, job: Job, tokens: list[int]) -> list[int]:
        """The model's tokens of a request; the oracle computes all of them at once."""
        return model_tokens(tokens, job.namespace, self.subject.vocabulary)

    def _judge(
        self,
        job: Job,
        tokens: list[int],
        span: tuple[int, int],
        logits: Sequence[torch.Tensor],
        where: str,
        read: tuple[Sequence[Pages], Sequence[StateSlots]],
    ) -> None:
        first, end = span
        if first == end:
            return
        self.paths["passes"] += 1
        self._passed.add(job.id)
        self.paths["positions"] += end - first
        oracle = self.subject.oracle
        oracle.logits(tokens)
        verdict = oracle.judge(tokens[:end], first, logits)
        self.worst.add(verdict)
        if verdict.kind == "wrong":
            culprit = self._culprit(tokens[:first], *read)
            raise self._deviation(job, tokens, span, logits, where, verdict, culprit)
        if verdict.kind == "unstable":
            self.paths["unstable"] += 1
            self.paths["unstable requests"] += job.id not in self._jumped
            self._jumped.add(job.id)

    def _deviation(
        self,
        job: Job,
        tokens: list[int],
        span: tuple[int, int],
        logits: Sequence[torch.Tensor],
        where: str,
        verdict: Verdict,
        culprit: Culprit | None,
    ) -> Deviation:
        first, end = span
        cold = self.subject.oracle.logits(tokens[:end])[verdict.model][first:]
        rows = (cold - logits[verdict.model]).abs().amax(dim=1)
        accepted = self.subject.oracle.bounds[verdict.model].accepted
        at = first + int((~(rows <= accepted)).nonzero()[0])
        family = self.subject.settings.family
        model = ", of the draft model" if verdict.model else ""
        return Deviation(
            f"LOGITS {family}",
            f"{RULE}\n    {family}, request {job.id}, {where} over tokens {first}..{end}{model}: "
            f"from position {at} on, largest difference {verdict.difference:.2g}, "
            f"bound {verdict.bound:.2g}, {verdict.bounds:.2g} times the bound{_blamed(culprit)}",
            About("request", job.id),
            *(
                (About("page", culprit.page, int(Tier.DEVICE), culprit.component),)
                if culprit
                else ()
            ),
        )

    def _culprit(
        self, tokens: list[int], tables: Sequence[Pages], states: Sequence[StateSlots]
    ) -> Culprit | None:
        """The page that a pass behind these tokens has read, and that is wrong."""
        least = {
            name: max(0, len(tokens) - window + 1) if window else 0
            for name, window in self._windows.items()
        }
        return culprit(
            self.subject, self._described, self.memory.arena, Read(tokens, tables, states, least)
        )

    def figures(self) -> Figures:
        """What was seen so far."""
        worst = self.worst
        accepted = (worst.difference, worst.bounds, worst.bound)
        return Figures(len(self._passed), self.paths, *accepted, worst.unstable, worst.wrong)

    def close(self) -> None:
        self.memory.close()
        self.stored.close()


def model_tokens(tokens: Sequence[int], namespace: str, vocabulary: int) -> list[int]:
    """The tokens of a model for those of a tape.

    A tape's prompts use few tokens, and many times the same one in a row. Here the model's token
    also depends on the position and the namespace, so that pages that are not the same seldom look
    alike. Equal prefixes of one namespace stay equal, and other tokens at a position stay other
    ones.
    """
    start = crc32(namespace.encode()) if namespace else 0
    return [
        (token * _TOKEN + position * _POSITION + start) % vocabulary
        for position, token in enumerate(tokens)
    ]
