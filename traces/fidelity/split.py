"""Which rows constants may be fitted on, and which ones judge them.

Rows are split by group, once and by a hash: a group is one accelerator, model and engine. So a
figure that was fitted is never judged by a row of its own group.
"""

from __future__ import annotations

from hashlib import sha256

from .rows import Row

FIT, JUDGE = "fit", "judge"
HALVES = (FIT, JUDGE)


def group(row: Row) -> str:
    """The group of a row: accelerator, model and engine, such as "h100|llama-3.1-8b|vllm"."""
    return f"{row.hardware}|{row.model}|{row.engine}"


def half(row: Row) -> str:
    """ "fit" or "judge", from the first byte of the SHA-256 of the group."""
    return half_of(group(row))


def half_of(group: str) -> str:
    return JUDGE if sha256(group.encode()).digest()[0] % 2 else FIT
