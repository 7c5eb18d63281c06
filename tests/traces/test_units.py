"""Quantities with their units, computed by hand: money, memory, bandwidth, time. Each number here
is written out, so that a constant of a unit that is wrong anywhere on the way changes it.
"""

from __future__ import annotations

import numpy as np
import pytest

from traces.replaying.load import MODELS, from_gaps
from traces.sizing.candidates import Candidate, cost_of, read_prices

NINE = 1_000_000_000


def test_money_by_hand() -> None:
    """Two years are 17,520 hours and four are 35,040."""
    prices = read_prices("gpu=35040,host=3.504/GB,years=2")
    assert prices.per_hour == pytest.approx({"gpu": 2.0, "host": 0.0002})
    assert read_prices("gpu=35040").per_hour == pytest.approx({"gpu": 1.0})
    # 2 x 2 + 512 x 0.0002 an hour
    assert cost_of(Candidate("h100", 2, 1, 512 * NINE), prices) == pytest.approx(4 + 0.1024)


@pytest.mark.parametrize(
    "text",
    ["gpu", "ram=3/GB", "gpu=1/h,gpu=2/h", "host=3", "gpu=3/GB", "gpu=-1/h", "gpu=1/h,years=0"],
)
def test_bad_prices_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected prices of gpu, host or an accelerator"):
        read_prices(text)


def test_a_load_is_requests_a_second() -> None:
    assert from_gaps(np.array([0.5, 2.0])).tolist() == [0, 500_000_000, 2_500_000_000]
    draw = np.random.Generator(np.random.PCG64(1))
    zeros = np.zeros(4000, dtype=np.int64)
    found = MODELS["poisson"].arrivals(zeros, 10.0, 0.0, draw)
    assert 350 < found[-1] / NINE < 450
