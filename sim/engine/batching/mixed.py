"""Decoding and chunks in one pass with one budget, decoding first: vLLM V1, TensorRT-LLM, and
SGLang with --enable-mixed-chunk."""

from __future__ import annotations

WITH_DECODING = True


def budget(tokens: int, decoding: int) -> int:
    return tokens - decoding
