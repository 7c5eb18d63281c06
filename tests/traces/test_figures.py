"""Published figures, to the token: the conversation trace and the multi-turn workload."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tests.conversation import conversation
from traces.curves.distances import lru_curve
from traces.formats._open import open_trace, parse
from traces.formats.base import Lines, Paged
from traces.generators import base
from traces.terminal.options import OptionRecord

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
RATES = [
    0.0, 0.583333, 0.75, 0.821429, 0.861111, 0.886364,
    0.903846, 0.916667, 0.926471, 0.934211, 0.940476, 0.945652,
]  # fmt: skip


@pytest.fixture(scope="module")
def paged() -> Paged:
    return open_trace(str(conversation())).paged(512)


@pytest.mark.parametrize("capacity", LRU)
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


def test_conversation_curve(paged: Paged) -> None:
    """The same figures from reuse distances, without a cache."""
    curve = lru_curve(paged, first=len(paged.jobs) // 2)
    assert {capacity: curve.hit_tokens(capacity) for capacity in LRU} == LRU


def defaults(generator: base.Generator) -> OptionRecord:
    return generator.Options.read([])


def multiturn() -> Paged:
    generator = base.load("multiturn")
    text = base.text("multiturn", generator, defaults(generator))
    return parse(Lines("multiturn", (line.encode() for line in text))).paged(64)


@pytest.mark.parametrize(("device", "host"), [(1_000, 0), (200, 1_000)])
def test_multiturn_rates_per_round(device: int, host: int) -> None:
    """All that was committed hits, from the device or from a host that is large enough."""
    account, _, _ = replay_hits(multiturn(), device, host)
    rates = []
    for turn in range(12):
        hit, total = account.hit_tokens(range(turn * 10, turn * 10 + 10))
        rates.append(round(hit / total, 6))
    assert rates == RATES
    assert round(account.whole().hit_rate, 6) == 0.897569
    assert bool(account.whole().hit_tokens.host) == bool(host)


def test_generators_are_functions_of_their_options() -> None:
    for name in ("multiturn", "random-tree", "shared-prefix"):
        generator = base.load(name)
        options = asdict(defaults(generator))
        small = {"requests": 50, "groups": 4, "clients": 3, "seed": 5}
        options |= {key: value for key, value in small.items() if key in options}

        def text(generator: base.Generator = generator, **changed: int) -> list[str]:
            wanted = generator.Options(**{**options, **changed})  # noqa: B023
            return list(base.text("x", generator, wanted))[1:]

        assert text() == text()
        assert text(seed=6) != text()
