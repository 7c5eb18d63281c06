"""The definitions of a hit rate, on numbers small enough to check by hand."""

from __future__ import annotations

import pytest

from traces.replaying.account import Account, ceiling_of
from traces.results.record import Tiers

from .rig import HEADER, mooncake, native, read


def test_three_hit_rates_and_two_halves() -> None:
    jobs = read(mooncake([1], 100), mooncake([1, 2], 600), mooncake([1, 3], 1000)).jobs
    paged = read(mooncake([1], 100), mooncake([1, 2], 600), mooncake([1, 3], 1000)).paged(512)
    account = Account(jobs, 512, ceiling_of(paged, whole_prompts=True))
    account.admit(0, 0, 0)
    account.admit(1, 512, 0)
    account.admit(2, 0, 500)
    account.admit(2, 1000, 0)  # it came back after a preemption: not counted again
    whole, steady = account.whole(), account.steady()
    assert (whole.hit_tokens, whole.computed_tokens) == (Tiers(512, 500, 0), 688)
    assert whole.hit_rate == pytest.approx(1012 / 1700)
    assert whole.hit_rate_pages == pytest.approx(2 / 5)
    assert whole.hit_rate_mean == pytest.approx((0 + 512 / 600 + 500 / 1000) / 3)
    assert (whole.ceiling_tokens, whole.first_seen_tokens, whole.lost_tokens) == (1024, 676, 12)
    # of three requests the middle one belongs to the second half
    assert (steady.requests, steady.input_tokens) == (2, 1600)
    assert account.hit_tokens([1, 2]) == (1012, 1600)


def test_no_served_request_gives_zero_rates() -> None:
    paged = read(mooncake([1])).paged(64)
    account = Account(paged.jobs, 64, ceiling_of(paged, whole_prompts=False))
    assert account.whole().hit_rate == account.whole().hit_rate_pages == 0.0


def test_an_engine_computes_the_last_token() -> None:
    paged = read(mooncake([1]), mooncake([1]), mooncake([1, 2], 513)).paged(64)
    assert ceiling_of(paged, whole_prompts=True).tolist() == [0, 512, 512]
    assert ceiling_of(paged, whole_prompts=False).tolist() == [0, 448, 512]


def test_a_known_answer_can_be_hit_except_its_last_token() -> None:
    first = native(("q", 64), output=("a", 64))
    again = native(("q", 64), ("a", 64), ("r", 1), output=("b", 1), after=0)
    for tokens, ceiling in ((64, 64), (65, 128)):
        first["output"][1] = tokens
        paged = read(HEADER, first, again).paged(64)
        assert ceiling_of(paged, whole_prompts=True).tolist() == [0, ceiling]
