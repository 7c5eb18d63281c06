"""Plays the lives of one family: the same requests on every side, and the judgement of each answer.

The side with the connector loses vLLM's own cache now and then (so that it loads from host), and is
killed at the end of each life, while it serves; the store outlives it. After each sequence nothing
may be held. A failure ends the life; the next one begins with an empty store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hicache.core.errors import CallerError
from traces.terminal.asked import Ended

from . import faults
from .drawing import ASK, DROP, Life, Request, Scale, Sequence, lives, scale_of
from .rule import JUMPED, WRONG, Verdict, judge
from .sides import Cold, Side, Start, answer_of, held

CONNECTOR, OWN = "connector", "vllm"
WRONG_ANSWER, LEAK, BROKEN, DEATH = "WRONG", "LEAK", "BROKEN", "DEATH"
CODES = {WRONG_ANSWER: 12, LEAK: 11, BROKEN: 13, DEATH: 15}
MOST_FAILURES = 3  # of a family, which ends then
MOST_JUMPED = 2  # percent of the answers of a side
FEW_JUMPED = 5
_BOUND_PROMPTS = 4
_LOOKUP = 3  # the most tokens at the end whose like is looked for before
_SUMMED = ("host_tokens", "storage_tokens", "failed_loads", "failed_saves")
Prompts = list[tuple[int, ...]]


@dataclass
class OfSide:
    """What one engine has answered. answers: by kind of verdict. counts: hits, preemptions and
    what its connector counted. difference: the largest of log probabilities that was accepted."""

    answers: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    difference: float = 0.0


@dataclass(frozen=True)
class Failure:
    """kind: of `CODES`. side: whose. life, sequence, request: numbers, the last -1 if it is none's.
    played: what the side was asked in this life until then: lists of requests of its process."""

    kind: str
    side: str
    life: int
    sequence: int
    request: int
    text: str
    settings: Mapping[str, Any]
    played: tuple[Any, ...] = ()

    @property
    def code(self) -> int:
        return CODES[self.kind]


@dataclass
class Judged:
    """One family. requests: judged on both sides. ended: processes that ended by themselves. error:
    why the family cannot be played; else empty."""

    family: str
    requests: int = 0
    sequences: int = 0
    lives: int = 0
    kills: int = 0
    ended: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    bound: float = 0.0
    sides: dict[str, OfSide] = field(default_factory=lambda: {CONNECTOR: OfSide(), OWN: OfSide()})
    failures: list[Failure] = field(default_factory=list)
    error: str = ""

    @property
    def jumped(self) -> bool:
        """Whether so many answers jumped that they say too little."""
        return any(
            one.answers[JUMPED] > FEW_JUMPED
            and 100 * one.answers[JUMPED] > MOST_JUMPED * one.answers.total()
            for one in self.sides.values()
        )


@dataclass
class _Stopped(Exception):
    """A failure, after which the life does not go on."""

    failure: Failure


class Player:
    """One family. folder: for its store. start: opens an engine. done: whether to stop."""

    def __init__(
        self,
        family: str,
        start: Start,
        folder: Path,
        *,
        seed: int,
        faults: bool,
        plant: str = "",
        requests: int = 0,
        shown: Callable[[Judged], bool],
    ) -> None:
        """requests: the most that are judged; 0: no limit. shown: gets what was found so far, after
        all that were sent together; returns True to stop."""
        self.found = Judged(family)
        self._start, self._store, self._shown = start, folder / f"store-{family}", shown
        self._seed, self._faults, self._plant = seed, faults, plant
        self._requests = requests
        self._rng = Random(seed)
        self._page_bytes = 0
        self._groups: list[int] = []
        self._at = (0, 0)
        self._settings: dict[str, Any] = {}
        self._played: dict[str, list[Any]] = {}

    def play(self) -> Judged:
        """Until `shown` says so, or there are too many failures."""
        try:
            scale = self._look()
            with self._start(engine={"enable_prefix_caching": False}) as engine:
                cold = Cold(engine, scale.page)
                rng = Random(self._seed)
                prompts = [
                    [rng.randrange(1000) for _ in range(scale.longest - 7 * number)]
                    for number in range(1, _BOUND_PROMPTS + 1)
                ]
                self.found.bound = cold.bound(prompts)
                for life in lives(self._seed, scale, self._faults):
                    self._life(life, scale, cold)
                    most = 1 if self._plant else MOST_FAILURES
                    if self._enough() or len(self.found.failures) >= most:
                        break
                self._ends(cold)
        except (CallerError, Ended) as error:
            self.found.error = _said(error)
        return self.found

    def _enough(self) -> bool:
        done = bool(self._requests) and self.found.requests >= self._requests
        return self._shown(self.found) or done

    def _look(self) -> Scale:
        """Open an engine to see its pages."""
        with self._start() as engine:
            facts = engine.open()
            self._page_bytes = facts["page_bytes"]
            self._groups = [one["block"] for one in facts["groups"]]
            if not self._page_bytes:
                raise CallerError("the connector cannot carry its groups of KV cache")
        return scale_of(max(self._groups))

    def _life(self, life: Life, scale: Scale, cold: Cold) -> None:
        self.found.lives += 1
        self._at = (life.number, 0)
        self._played = {CONNECTOR: [], OWN: []}
        try:
            if life.fault and faults.do(life.fault, self._store, self._rng):
                self.found.faults[life.fault] += 1
            engine, connector = self._arguments(life, scale)
            plant = self._plant
            with (
                self._start(engine=engine, connector=connector, plant=plant) as mine,
                self._start(engine=engine, plant=plant if plant.startswith("vllm-") else "") as its,
            ):
                sides = {
                    CONNECTOR: Side(mine, life.chunk * scale.page),
                    OWN: Side(its, life.chunk * scale.page),
                }
                for number, sequence in enumerate(life.sequences):
                    self._at = (life.number, number)
                    self._sequence(sequence, sides, cold, scale)
                    self.found.sequences += 1
                    if self._enough():
                        break
                else:
                    self._kill(sides[CONNECTOR], life, scale)
                    self._ends(sides[OWN])
                    return
                for name, side in sides.items():
                    self._ends(side, name)
        except _Stopped as stopped:
            self.found.failures.append(stopped.failure)
            faults.remove(self._store)

    def _arguments(self, life: Life, scale: Scale) -> tuple[dict[str, Any], dict[str, Any]]:
        """Those of the engine, and the settings of the connector."""
        longest = sum(-(-scale.longest // block) for block in self._groups)
        engine: dict[str, Any] = {
            "num_gpu_blocks_override": int(life.roomy * longest) + 2,
            "max_model_len": scale.longest,
            "max_num_seqs": 8,
        }
        if life.drafts:
            engine["speculative_config"] = {
                "method": "ngram",
                "num_speculative_tokens": life.drafts,
                "prompt_lookup_max": _LOOKUP,
                "prompt_lookup_min": 1,
            }
        connector: dict[str, Any] = {"host": life.host_pages * self._page_bytes}
        if life.store_pages:
            connector["storage"] = f"file:{self._store}"
        if life.store_pages > 0:
            # A store has room for its files beside the values.
            connector["storage_size"] = life.store_pages * (self._page_bytes + 8192)
        self._settings = {
            "engine": engine,
            "connector": connector,
            "chunk": life.chunk * scale.page,
        }
        return engine, connector

    def _sequence(
        self, sequence: Sequence, sides: Mapping[str, Side], cold: Cold, scale: Scale
    ) -> None:
        prompts: Prompts = []
        for step in sequence:
            if step.do == ASK:
                begins = len(prompts)
                batch = []
                left = self._requests - self.found.requests if self._requests else None
                for request in step.requests[:left]:
                    prompt = _prompt(request, prompts, cold, scale)
                    batch.append((request, prompt))
                prompts += [prompt for _, prompt in batch]
                for name, side in sides.items():
                    self._ask(name, side, batch, cold, begins)
                self.found.requests += len(batch)
                if self._enough():
                    break
            elif step.do == DROP:
                self._guarded(CONNECTOR, sides[CONNECTOR].drop)
                self._played[CONNECTOR].append("drop")
            elif "storage" in self._settings["connector"]:
                done = faults.do(step.fault, self._store, self._rng)
                self.found.faults[step.fault] += done
        for name, side in sides.items():
            self._check(name, self._guarded(name, side.state))

    def _ask(self, name: str, side: Side, batch: list[Any], cold: Cold, begins: int) -> None:
        self._played[name].append(batch)
        answers = self._guarded(name, lambda: side.ask(batch))
        of_side = self.found.sides[name]
        for place, ((_, prompt), found) in enumerate(zip(batch, answers, strict=True)):
            of_side.counts["hits"] += found.get("cached") or 0
            of_side.counts["prompts"] += len(prompt)
            answer = answer_of(found)
            verdict = judge(prompt, answer, self.found.bound, cold.answer, cold.others)
            self._note(name, verdict, begins + place)

    def _note(self, name: str, verdict: Verdict, request: int) -> None:
        of_side = self.found.sides[name]
        of_side.answers[verdict.kind] += 1
        if verdict.kind == WRONG:
            raise _Stopped(self._failure(WRONG_ANSWER, name, verdict.text, request))
        of_side.difference = max(of_side.difference, verdict.difference)

    def _check(self, name: str, state: Mapping[str, Any]) -> None:
        """Nothing is held, and the connector works."""
        counts = self.found.sides[name].counts
        seen = dict(state.get("counts", {})) | {"preemptions": state["preemptions"]}
        for key in (*_SUMMED, "preemptions"):
            # These are counted since the process began.
            before = counts[f"{key} before"] if self._at[1] else 0
            counts[key] += seen.get(key, 0) - before
            counts[f"{key} before"] = seen.get(key, 0)
        said = held(state)
        if said:
            raise _Stopped(self._failure(LEAK, name, "; ".join(said)))
        if state.get("broken"):
            raise _Stopped(self._failure(BROKEN, name, "the connector met an unforeseen error"))

    def _kill(self, side: Side, life: Life, scale: Scale) -> None:
        """End the life while it serves what it has served before."""
        last = [step for step in life.sequences[-1] if step.do == ASK]
        batch = [
            (request._replace(abort_after=0, abort_step=0, max_tokens=8), request.prompt)
            for step in last[-4:]
            for request in step.requests
            if request.follows < 0
        ]
        with suppress(Ended):
            side.die(batch, self._rng.randint(1, 6))
        side.kill()
        self.found.kills += 1
        if not self._store.is_dir() or _is_unusable(life):
            faults.remove(self._store)

    def _ends(self, side: Side | Cold, name: str = OWN) -> None:
        code = self._guarded(name, side.end)
        if code:
            text = f"its process ended with code {code}"
            raise _Stopped(self._failure(DEATH, name, text))
        self.found.ended += 1

    def _guarded(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (CallerError, Ended) as error:
            raise _Stopped(self._failure(DEATH, name, _said(error))) from None

    def _failure(self, kind: str, side: str, text: str, request: int = -1) -> Failure:
        settings = dict(self._settings)
        if side == OWN:
            settings["connector"] = None
        return Failure(kind, side, *self._at, request, text, settings, tuple(self._played[side]))


def _prompt(request: Request, before: Prompts, cold: Cold, scale: Scale) -> tuple[int, ...]:
    """The tokens of a request, as far as the engine takes them."""
    prompt = request.prompt
    if request.follows >= 0:
        asked = before[request.follows]
        prompt = asked + cold.answer(asked, 4).tokens + prompt
    return prompt[: scale.longest - request.max_tokens - 1]


def _is_unusable(life: Life) -> bool:
    return any(step.fault in faults.UNUSABLE for one in life.sequences for step in one)


def _said(error: Exception) -> str:
    if isinstance(error, Ended):
        last = error.said.splitlines()[-1:] or [""]
        return f"{error.text}: {last[0]}".removesuffix(": ")
    return str(error)
