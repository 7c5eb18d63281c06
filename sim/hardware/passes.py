"""What a pass of a real engine takes: constants that were fitted to its own passes.

    pass = each pass + curve(new tokens) + pairs x query-key pairs of prompts
           + context x rows that decoding sequences attend to + chunks x chunks of prompts

New tokens are those of chunks and one of each decoding sequence. Pairs under the causal mask:
token i of a prompt attends to i + 1. No constant is below 0, so more work never takes less time.
Does not fit (see traces/engines/times) and does not contain the time of the host (an engine
profile has that).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hicache.core.errors import CallerError


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Nanoseconds. tokens, tokens_ns: points of the curve, which begins at 0 and goes on above the
    last point as between the last two."""

    pass_ns: float
    tokens: tuple[int, ...]
    tokens_ns: tuple[float, ...]
    pair_ns: float
    context_ns: float
    chunk_ns: float

    def __post_init__(self) -> None:
        points = ((0, 0.0), *zip(self.tokens, self.tokens_ns, strict=False))
        falls = any(one[0] >= two[0] or one[1] > two[1] for one, two in pairwise(points))
        if len(self.tokens) != len(self.tokens_ns) or len(points) < 2 or falls:
            raise CallerError("passes: expected a curve with rising points, found another")

    def of_tokens(self, count: int) -> float:
        """Of so many new tokens."""
        tokens, times = (0, *self.tokens), (0.0, *self.tokens_ns)
        at = min(bisect_right(tokens, count), len(tokens) - 1)
        slope = (times[at] - times[at - 1]) / (tokens[at] - tokens[at - 1])
        return times[at - 1] + slope * (count - tokens[at - 1])


def pairs_of(chunks: Sequence[tuple[int, int]]) -> int:
    """Query-key pairs of prompts' chunks (start, end)."""
    return sum((end - start) * (start + end + 1) // 2 for start, end in chunks)
