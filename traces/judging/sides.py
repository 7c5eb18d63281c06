"""The engines that answer: one with the connector, one with vLLM's own cache alone, and one without
any cache, whose answers to one request at a time are the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from traces.engines.vllm import Vllm
from traces.terminal.asked import Answer as Json

from .drawing import Request
from .rule import Answer

TOP = 6  # log probabilities of a token
_ASK_S = 300.0
_MOST_KNOWN = 4000  # cold answers that are kept
_BESIDE = 3  # prompts of a cold batch
Start = Callable[..., Vllm]  # with arguments of `Vllm`


class Side:
    """One engine, opened for a life."""

    def __init__(self, engine: Vllm, chunk: int) -> None:
        """chunk: tokens of a step; 0: as vLLM does."""
        self._engine = engine
        self.facts = engine.open()
        if chunk:
            engine.ask({"do": "chunk", "tokens": chunk}, _ASK_S)

    def ask(self, requests: Sequence[tuple[Request, tuple[int, ...]]]) -> list[Json]:
        """requests: with their prompts. See `child.Served.generate`."""
        found: list[Json] = self._engine.generate(_asked(requests), TOP, _ASK_S)["answers"]
        return found

    def die(self, requests: Sequence[tuple[Request, tuple[int, ...]]], step: int) -> None:
        """Kill the process while it serves these requests. Raises Ended, as it cannot answer."""
        asked = {"do": "generate", "requests": _asked(requests), "die_step": step}
        self._engine.ask(asked, _ASK_S)

    def drop(self) -> None:
        """Empty vLLM's own cache."""
        self._engine.ask({"do": "drop"}, _ASK_S)

    def state(self) -> Json:
        """What is in use once nothing is under way."""
        self._engine.ask({"do": "idle"}, _ASK_S)
        return self._engine.ask({"do": "state"}, _ASK_S)

    def end(self) -> int:
        """Let the process end by itself. Returns its exit code."""
        return self._engine.end()

    def kill(self) -> None:
        self._engine.close()


class Cold:
    """The truth. It remembers its answers."""

    def __init__(self, engine: Vllm, page: int) -> None:
        self._engine, self._page = engine, page
        engine.open()
        self._known: dict[tuple[int, ...], Answer] = {}
        self.asked = 0

    def answer(self, prompt: Sequence[int], count: int) -> Answer:
        """So many tokens after a prompt."""
        key = tuple(prompt)
        known = self._known.get(key)
        if known is None or len(known.tokens) < count:
            [known] = self._ask([key], count)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return Answer(known.tokens[:count], known.rows[:count])

    def others(self, prompt: Sequence[int], count: int) -> list[Answer]:
        """The same in other ways: cut into chunks, and beside other prompts."""
        found = []
        for chunk in (self._page, 2 * self._page, 3 * self._page // 2):
            self._engine.ask({"do": "chunk", "tokens": chunk}, _ASK_S)
            found += self._ask([tuple(prompt)], count)
        self._engine.ask({"do": "chunk", "tokens": 0}, _ASK_S)
        beside = [tuple(prompt[number:]) or (number,) for number in range(1, _BESIDE)]
        found.append(self._ask([tuple(prompt), *beside], count)[0])
        return found

    def bound(self, prompts: Sequence[Sequence[int]], count: int = 4) -> float:
        """How far log probabilities of cold runs in different ways differ, as long as their tokens
        are the same."""
        worst = 0.0
        for prompt in prompts:
            truth = self.answer(prompt, count)
            for other in self.others(prompt, count):
                for place, (mine, its) in enumerate(zip(truth.rows, other.rows, strict=True)):
                    known = mine.keys() & its.keys()
                    worst = max(worst, *(abs(mine[one] - its[one]) for one in known))
                    if truth.tokens[place] != other.tokens[place]:
                        break
        return worst

    def end(self) -> int:
        return self._engine.end()

    def _ask(self, prompts: Sequence[tuple[int, ...]], count: int) -> list[Answer]:
        self.asked += len(prompts)
        requests = [(Request((), count), one) for one in prompts]
        answers = self._engine.generate(_asked(requests), TOP, _ASK_S)["answers"]
        return [answer_of(one) for one in answers]


def answer_of(found: Mapping[str, Any]) -> Answer:
    """An answer of the process."""
    rows = [{int(token): value for token, value in row.items()} for row in found.get("top", ())]
    return Answer(tuple(found.get("tokens", ())), tuple(rows))


def held(state: Mapping[str, Any]) -> list[str]:
    """What is held though nothing is under way, in words."""
    said = []
    if state["free_blocks"] != state["blocks"]:
        lost = state["blocks"] - state["free_blocks"]
        said.append(f"{lost} of {state['blocks']} blocks of vLLM are not free")
    for name, what in (
        ("requests", "requests of vLLM"),
        ("held_blocks", "blocks held by the connector"),
        ("core_requests", "requests of the core"),
        ("core_flights", "actions of the core without a reply"),
    ):
        if state.get(name):
            said.append(f"{state[name]} {what}")
    return said


def _asked(requests: Sequence[tuple[Request, tuple[int, ...]]]) -> list[Json]:
    found: list[Json] = []
    for one, prompt in requests:
        asked = one._asdict() | {"tokens": prompt}
        del asked["prompt"], asked["follows"]
        found.append({key: value for key, value in asked.items() if value})
    return found
