"""One oracle per family for all tests of a process: measuring a bound takes a second."""

from __future__ import annotations

import functools

import numpy as np
import torch

from invariants.prove import building as base
from invariants.prove.oracle import Oracle

PROMPTS = 3


@functools.cache
def oracle_of(name: str) -> Oracle:
    return Oracle(base.build_all(name), prompts=PROMPTS)


def drawn(seed: int, length: int) -> list[int]:
    tokens: list[int] = np.random.default_rng(seed).integers(0, base.VOCABULARY, length).tolist()
    return tokens


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)
