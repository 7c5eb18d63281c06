"""The search for the cheapest candidate that serves finds what trying all of them finds, with few
trials."""

from __future__ import annotations

import random
from itertools import product

import pytest

from traces.sizing.cheapest import Search

Offer = tuple[int, int, int]  # a kind, and two amounts


def drawn(seed: int) -> tuple[list[Offer], list[float], set[int]]:
    """Offers in the order of their costs, what each can really do, and which of them serve."""
    draw = random.Random(seed)
    price = {kind: draw.uniform(0.5, 3) for kind in range(4)}
    speed = {kind: draw.uniform(0.5, 3) for kind in range(4)}
    memory, helps = draw.uniform(0.01, 0.5), draw.uniform(0, 0.4)
    offers = list(product(range(4), range(1, 9), range(5)))
    offers.sort(key=lambda one: one[1] * (price[one[0]] + memory * one[2]))
    can_do = [speed[kind] * count * (1 + helps * size) for kind, count, size in offers]
    demand = draw.uniform(0.5, 20)
    return offers, can_do, {at for at, does in enumerate(can_do) if does >= demand}


def searched(seed: int, wrong_by: float, most: int = 1) -> tuple[int | None, int | None, int, int]:
    """The answer, that of trying all, the trials, and the offers. wrong_by: how far the guess is
    from the truth."""
    offers, can_do, serving = drawn(seed)
    draw = random.Random(-seed)
    guesses = [does * draw.uniform(1 / wrong_by, wrong_by) for does in can_do]

    def weaker(one: int, other: int) -> bool:
        first, second = offers[one], offers[other]
        return first[0] == second[0] and first[1] <= second[1] and first[2] <= second[2]

    search = Search(len(offers), weaker, guesses.__getitem__, 1.0)
    trials = 0
    while wanted := search.next(most):
        assert len(set(wanted)) == len(wanted) <= most
        trials += len(wanted)
        for one in wanted:
            search.tried(one, one in serving)
    return search.answer, min(serving, default=None), trials, len(offers)


@pytest.mark.parametrize("wrong_by", [1.0, 2.0, 50.0])
@pytest.mark.parametrize("most", [1, 6])
def test_the_answer_is_that_of_trying_everything(wrong_by: float, most: int) -> None:
    for seed in range(60):
        found, true, *_ = searched(seed, wrong_by, most)
        assert found == true, seed


def test_few_trials_are_needed() -> None:
    part = []
    for seed in range(40):
        _, _, trials, offers = searched(seed, 2.0)
        part.append(trials / offers)
    assert sum(part) / len(part) < 0.2


def test_equal_offers_are_tried_once() -> None:
    search = Search(3, lambda one, other: True, lambda one: 1.0, 1.0)
    assert search.next(3) == [0]
    search.tried(0, False)
    assert search.next() == []
    assert search.ruled_out == {1: 0, 2: 0}
    assert search.answer is None
