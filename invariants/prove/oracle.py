"""The oracle: what the logits of tokens are without this cache, and whether given ones are those.

Two cold runs of one prompt differ too: the library adds in another order when it computes in other
chunks. The *bound* of a model is the largest such difference over drawn prompts, measured on the
machine that judges. Logits are accepted up to `ACCEPTED` bounds from the cold ones.

A model may also jump: where two experts, or two tokens of an indexer, have scores that rounding
cannot tell apart, the smallest difference selects the other one. So a comparison that exceeds the
bound is judged again against cold runs of the same prompt in other chunks, and against some whose
embeddings are changed in their last bits. If the logits are those of one of them, or if these runs
differ among themselves as much, the verdict is `unstable`; it is counted apart and says how far
they differ. Otherwise the logits are wrong.
"""

from __future__ import annotations

import statistics
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from hicache.core.errors import CallerError

from .cold import at_once, difference, in_chunks, stirred
from .families import VOCABULARY

ACCEPTED = 10.0  # a difference of at most so many bounds is rounding
JUMP = (
    30.0  # a drawn prompt whose runs differ by so many medians jumped, and does not widen the bound
)
_SIZES = ((8,), (13, 5), (32,), (64,), (1,))  # one token at a time costs most, and comes last
_STIRRINGS = 8
_OTHERS_KEPT = 16  # prompts
_COARSE = 1000.0  # roundings: a median above this is no rounding
_PROMPTS = 8
_ONE_BY_ONE = 1  # so many prompts are also computed token by token
_PROMPT_TOKENS = 160
_GRAIN = 16  # runs are found by their first tokens, in multiples of this


@dataclass(frozen=True, slots=True)
class Bound:
    """How far cold runs of one model differ. jumps: of the drawn prompts, those that jumped."""

    largest: float
    median: float
    prompts: int
    jumps: int

    @property
    def accepted(self) -> float:
        return ACCEPTED * self.largest


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one comparison. model: the one with the largest difference in its bounds.

    spread: how far cold runs of this prompt differ, where that was asked; else 0.
    """

    kind: str  # "equal", "unstable" or "wrong"
    model: int
    difference: float
    bound: float
    spread: float = 0.0

    @property
    def bounds(self) -> float:
        """The difference in bounds."""
        return self.difference / self.bound


def measure(model: PreTrainedModel, prompts: int = _PROMPTS, seed: int = 0) -> Bound:
    """Measure the bound of a model on drawn prompts. Raises CallerError for a model that jumps in
    most of them: nothing could be told from its logits."""
    draw = np.random.default_rng(seed)
    largest = []
    for prompt in range(prompts):
        tokens = draw.integers(0, VOCABULARY, _PROMPT_TOKENS).tolist()
        sizes = _SIZES if prompt < _ONE_BY_ONE else _SIZES[:-1]
        cold = at_once(model, tokens)
        largest.append(max(difference(cold, in_chunks(model, tokens, one)) for one in sizes))
    # Where everything is equal to the last bit, one rounding of a logit is the bound.
    median = max(statistics.median(largest), torch.finfo(model.dtype).eps)
    if median > _COARSE * torch.finfo(model.dtype).eps:
        raise CallerError(
            f"model: expected cold runs that agree up to rounding, found {median:.1e} between the "
            "logits of one prompt in other chunks; more heads of an indexer or smaller weights help"
        )
    steady = [one for one in largest if one <= JUMP * median]
    return Bound(max(*steady, median), median, prompts, prompts - len(steady))


class Oracle:
    """Cold logits of the models that run on the same tokens, and the judge of others' logits.

    prompts: how many are drawn to measure the bounds. remembered: how many positions of cold runs
    are kept; the least recently used go first.
    """

    def __init__(
        self,
        models: Sequence[PreTrainedModel],
        prompts: int = _PROMPTS,
        remembered: int = 100_000,
    ) -> None:
        self.models = tuple(models)
        self.bounds = tuple(measure(model, prompts) for model in self.models)
        self._remembered = remembered
        self._runs: OrderedDict[bytes, tuple[torch.Tensor, ...]] = OrderedDict()
        # For first tokens, the runs that begin so, in the order in which they were kept.
        self._found_by: defaultdict[bytes, dict[bytes, None]] = defaultdict(dict)
        self._positions = 0
        self._others: OrderedDict[tuple[int, bytes], list[torch.Tensor]] = OrderedDict()

    def logits(self, tokens: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """The cold logits of all tokens, for each model. A longer run's first rows are served:
        a model is causal. Ask for the longest sequence first, where it is known."""
        key = _key(tokens)
        run = self._run_from(key)
        if run is None:
            run = key
            self._keep(run, tuple(at_once(model, tokens) for model in self.models))
        self._runs.move_to_end(run)
        return tuple(rows[: len(tokens)] for rows in self._runs[run])

    def judge(self, tokens: Sequence[int], start: int, logits: Sequence[torch.Tensor]) -> Verdict:
        """Judge the logits, one tensor per model, of the positions from `start` to the end of
        `tokens`, that is, of a pass over tokens[start:]."""
        cold = [rows[start:] for rows in self.logits(tokens)]
        found = [difference(*pair) for pair in zip(cold, logits, strict=True)]
        worst = max(range(len(found)), key=lambda model: found[model] / self.bounds[model].largest)
        bound = self.bounds[worst]
        if found[worst] <= bound.accepted:
            return Verdict("equal", worst, found[worst], bound.largest)
        return self._again(tokens, start, worst, cold, logits)

    def _again(
        self,
        tokens: Sequence[int],
        start: int,
        worst: int,
        cold: Sequence[torch.Tensor],
        logits: Sequence[torch.Tensor],
    ) -> Verdict:
        """Judge once more, against other cold runs of these very tokens. Each model whose
        difference is too large must be unstable itself."""
        kind, spread = "unstable", 0.0
        for number, (rows, given) in enumerate(zip(cold, logits, strict=True)):
            found, accepted = difference(rows, given), self.bounds[number].accepted
            if found > accepted:
                runs, apart, explained = [rows], 0.0, False
                for other in self._other_runs(number, tokens):
                    run = other[start:]
                    apart = max(apart, *(difference(run, one) for one in runs))
                    runs.append(run)
                    explained = apart >= found or difference(run, given) <= accepted
                    if explained:
                        break
                spread = max(spread, apart)
                if not explained:
                    kind = "wrong"
        found = difference(cold[worst], logits[worst])
        return Verdict(kind, worst, found, self.bounds[worst].largest, spread)

    def _other_runs(self, number: int, tokens: Sequence[int]) -> Iterator[torch.Tensor]:
        """Cold runs with other roundings, and in other chunks: the cheapest first, and each only
        when it is asked for. The last few prompts are kept: a failure is judged again and again
        while it is made smaller."""
        key, model = (number, _key(tokens)), self.models[number]
        runs = self._others.setdefault(key, [])
        if len(self._others) > _OTHERS_KEPT:
            self._others.popitem(last=False)
        for at in range(_STIRRINGS + len(_SIZES)):
            if at == len(runs):
                if at < _STIRRINGS:
                    runs.append(stirred(model, tokens, at))
                else:
                    runs.append(in_chunks(model, tokens, _SIZES[at - _STIRRINGS]))
            yield runs[at]

    def _run_from(self, key: bytes) -> bytes | None:
        if key in self._runs:
            return key
        found = self._found_by.get(key[: len(key) - len(key) % _GRAIN_BYTES], ())
        return next((run for run in found if run.startswith(key)), None)

    def _keep(self, key: bytes, logits: tuple[torch.Tensor, ...]) -> None:
        self._runs[key] = logits
        self._positions += len(logits[0])
        for end in range(0, len(key) + 1, _GRAIN_BYTES):
            self._found_by[key[:end]][key] = None
        while self._positions > self._remembered and len(self._runs) > 1:
            self._forget()

    def _forget(self) -> None:
        key, logits = self._runs.popitem(last=False)
        self._positions -= len(logits[0])
        for end in range(0, len(key) + 1, _GRAIN_BYTES):
            runs = self._found_by[key[:end]]
            del runs[key]
            if not runs:
                del self._found_by[key[:end]]


def _key(tokens: Sequence[int]) -> bytes:
    return np.asarray(tokens, dtype=np.int32).tobytes()


_GRAIN_BYTES = _GRAIN * np.dtype(np.int32).itemsize
