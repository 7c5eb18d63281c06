"""A model that is quick to move: every test that needs bytes, and not whose, takes this one; and
numbers of pages."""

from __future__ import annotations

import numpy as np

from hicache.core.types import Pages
from hicache.models import ModelDescription, mha


def tiny(layers: int, head_elements: int = 6, kv_heads: int = 2) -> ModelDescription:
    """Keys and values of two bytes an element."""
    return mha.describe(
        "tiny",
        "made up for tests",
        layers=layers,
        hidden_size=8,
        vocabulary=16,
        attention_heads=4,
        kv_heads=kv_heads,
        head_elements=head_elements,
        parameters=1000,
    )


def pages(*numbers: int) -> Pages:
    return np.array(numbers, dtype=np.int64)
