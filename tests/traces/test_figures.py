"""Published figures, to the token: the conversation trace and the multi-turn workload."""

from __future__ import annotations

import pytest

from tests.conversation import conversation
from traces.formats import open_trace
from traces.formats.base import Paged

from .rig import replay_hits

STEADY_INPUT = 67_915_607
# What kvcache-simulator 0.1.3 hits under LRU in the second half of the trace, by its pages.
LRU = {
    1_409: 3_320_864,
    5_637: 8_928_755,
    13_107: 16_995_095,
    22_550: 21_501_492,
    200_000: 27_038_068,
}


@pytest.fixture(scope="module")
def paged() -> Paged:
    return open_trace(str(conversation())).paged(512)


@pytest.mark.parametrize("capacity", [*LRU][:3])
def test_conversation_lru(paged: Paged, capacity: int) -> None:
    account, _, _ = replay_hits(paged, capacity)
    steady = account.steady()
    assert steady.input_tokens == STEADY_INPUT
    assert steady.hit_tokens.device == LRU[capacity]


def test_conversation_two_tiers(paged: Paged) -> None:
    account, _, _ = replay_hits(paged, 2_818, host=22_550)
    steady = account.steady()
    assert (steady.hit_tokens.device, steady.hit_tokens.host) == (4_362_064, 17_139_428)
    assert steady.lost_tokens == 5_536_576
    assert steady.computed_tokens == 40_877_539 + steady.lost_tokens
