"""Ways to compose a pass, by name in `WAYS`: whether chunks of prompts and decoding share one.

Chunks are chosen before a pass decodes, so one that does not decode too takes precedence over
decoding. Does not choose chunks (see prefill) or launch a pass (see engine).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Batching(NamedTuple):
    """with_decoding: whether a pass with chunks of prompts decodes too. budget: the tokens that
    chunks may have in a pass of so many, while so many sequences decode."""

    with_decoding: bool
    budget: Callable[[int, int], int]


WAYS = {
    # one budget for both, decoding first: vLLM V1, TensorRT-LLM, SGLang with --enable-mixed-chunk
    "mixed": Batching(True, lambda tokens, decoding: tokens - decoding),
    # while there are chunks, decoding waits: SGLang, and vLLM V0 without chunked prefill
    "separate": Batching(False, lambda tokens, decoding: tokens),
}
