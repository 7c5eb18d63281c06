"""What every load model must keep to: order, determinism, and the rate that it was given."""

import numpy as np
import pytest
from numpy.typing import NDArray

from traces.replaying.traffic import MODELS

NAMES = list(MODELS)
COUNT = 4000
RECORDED = np.sort(np.random.default_rng(1).integers(0, 10**12, COUNT)) + 7


def made(name: str, seed: int, rate: float = 20.0, count: int = COUNT) -> NDArray[np.int64]:
    model = MODELS[name]
    return model.arrivals(RECORDED[:count], rate, model.cv or 0.0, np.random.default_rng(seed))


@pytest.mark.parametrize("name", NAMES)
def test_times_are_whole_in_order_and_the_same_for_the_same_seed(name: str) -> None:
    times = made(name, 3)
    assert times.dtype == np.int64
    assert len(times) == COUNT
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()
    assert (made(name, 3) == times).all()
    drawn = name in ("poisson", "gamma")
    assert (made(name, 4) != times).any() == drawn
    first = int(RECORDED[0]) if name == "recorded" else 0
    assert made(name, 3, count=1).tolist() == [first]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "at-once"])
def test_the_mean_rate_is_the_one_that_was_given(name: str) -> None:
    """Of 4,000 gaps with a standard deviation of twice their mean, the mean is within 10 % but for
    one seed in a thousand."""
    span_s = float(made(name, 5)[-1]) / 1e9
    assert span_s == pytest.approx((COUNT - 1) / 20.0, rel=0.1)


@pytest.mark.parametrize(("cv", "low", "high"), [(0.0, 0, 0), (1.0, 0.9, 1.1), (4.0, 3.2, 4.8)])
def test_gamma_has_its_coefficient_of_variation(cv: float, low: float, high: float) -> None:
    draw = np.random.default_rng(2)
    gaps = np.diff(MODELS["gamma"].arrivals(RECORDED, 20.0, cv, draw))
    assert low <= gaps.std() / gaps.mean() <= high + 1e-6


def test_a_poisson_process_has_exponential_gaps() -> None:
    """Kolmogorov and Smirnov: 1.95 / sqrt(n) is exceeded once in a thousand times."""
    gaps = np.sort(np.diff(made("poisson", 6)) / 1e9)
    reached = 1 - np.exp(-gaps * 20.0)
    apart = np.abs(reached - np.arange(1, len(gaps) + 1) / len(gaps)).max()
    assert apart < 1.95 / np.sqrt(len(gaps))


def test_a_rate_stretches_the_recorded_times_evenly() -> None:
    times = made("recorded", 0)
    expected = (RECORDED - RECORDED[0]) / (RECORDED[-1] - RECORDED[0])
    assert np.allclose(times / times[-1], expected, atol=1e-9)
    assert (made("recorded", 0, rate=0.0) == RECORDED).all()
