"""The rule: is an answer that of the model without any cache?

An answer is judged token by token against the cold one. At each place the log probabilities that
both report may differ by ten *bounds*: a bound is how far two cold runs differ whose prompts are
cut into other chunks, or which run beside others. Greedy decoding takes the largest one, so the
tokens may differ where they are a *near tie*: each knows the other's token, and the cold run puts
them at most twenty bounds apart. That is no wrong answer, and from there on the answer is judged
against a cold run that goes on from the answer's own token. Whatever is farther off is compared
with cold runs in other ways; if one of them is as near as that, the model itself *jumps* there
(experts that are a near tie). Everything else is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

ACCEPTED = 10  # bounds
LEAST_BOUND = 1e-6  # what log probabilities of fp32 are rounded to
SAME, NEAR, TIE, JUMPED, WRONG = "same", "near", "tie", "jumped", "wrong"
_FAR = 1e9  # where two do not report one token in common
_ORDER = (SAME, NEAR, TIE, JUMPED, WRONG)


class Answer(NamedTuple):
    """tokens, and for each of them log probabilities by token: its own and those of the best."""

    tokens: tuple[int, ...]
    rows: tuple[dict[int, float], ...]


class Verdict(NamedTuple):
    """kind: bit-equal, within the bounds, with a near tie, as a cold run in another way, or wrong.
    difference: the largest of log probabilities until then. text: what is wrong."""

    kind: str
    difference: float = 0.0
    text: str = ""


Cold = Callable[[Sequence[int], int], Answer]  # of a prompt, and the number of tokens


def judge(
    prompt: Sequence[int],
    answer: Answer,
    bound: float,
    cold: Cold,
    others: Callable[[Sequence[int], int], Sequence[Answer]],
) -> Verdict:
    """cold: the answer of a run without a cache. others: those of such runs in other ways."""
    allowed = ACCEPTED * max(bound, LEAST_BOUND)
    kind, worst, at = SAME, 0.0, 0
    while at < len(answer.tokens):
        before = (*prompt, *answer.tokens[:at])
        truth = cold(before, len(answer.tokens) - at)
        found = _compared(answer, at, truth, allowed)
        if found.kind == WRONG:
            ways = others(before, len(answer.tokens) - at)
            again = [_compared(answer, at, one, allowed) for one in ways]
            better = [one for one in again if one.end > found.end or one.kind != WRONG]
            if not better:
                return Verdict(WRONG, found.difference, found.text)
            found = max(better, key=lambda one: one.end)._replace(kind=JUMPED)
        else:
            worst = max(worst, found.difference)
        kind = max(kind, found.kind, key=_ORDER.index)
        at = found.end
    return Verdict(kind, worst)


class _Compared(NamedTuple):
    """end: the place behind what agrees, and behind a near tie. text: of what does not."""

    kind: str
    end: int
    difference: float
    text: str = ""


def _compared(answer: Answer, start: int, truth: Answer, allowed: float) -> _Compared:
    kind, worst = SAME, 0.0
    for place in range(start, len(answer.tokens)):
        mine, its = answer.tokens[place], truth.tokens[place - start]
        row, cold = answer.rows[place], truth.rows[place - start]
        off = max(
            (abs(row[token] - cold[token]) for token in row.keys() & cold.keys()), default=1e9
        )
        if off > allowed:
            text = f"token {place}: log probabilities differ by {off:.2g}, {allowed:.2g} may be"
            return _Compared(WRONG, place, off, text)
        worst = max(worst, off)
        kind = max(kind, SAME if off == 0 else NEAR, key=_ORDER.index)
        if mine != its:
            gap = cold[its] - cold[mine] if mine in cold else _FAR
            if its not in row or gap > 2 * allowed:
                text = f"token {place}: {mine} in place of {its}, which is no near tie"
                return _Compared(WRONG, place, max(worst, gap), text)
            return _Compared(TIE, place + 1, worst)
    return _Compared(kind, len(answer.tokens), worst)
