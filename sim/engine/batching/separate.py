"""A pass computes chunks or decodes. While there are chunks to compute, decoding waits: SGLang, and
vLLM V0 without chunked prefill."""

from __future__ import annotations

WITH_DECODING = False


def budget(tokens: int, decoding: int) -> int:
    return tokens
