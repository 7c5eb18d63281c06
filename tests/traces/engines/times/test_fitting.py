"""Constants that passes were made with are found again, with noise too; and the curve of a pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache import models
from hicache.core.errors import CallerError
from hicache.models import TINY
from sim.engine_profiles.base import EngineProfile
from sim.hardware import profile as hardware
from sim.hardware.passes import PassTimes, pairs_of
from sim.hardware.served import Served
from sim.times.base import MEASURED, Parallelism, make
from traces.engines.times.fitting import Pass, fit, least

TRUE = {"pass": 5e-3, "token": 4e-4, "pair": 2e-7, "row": 2e-6, "chunk": 1e-3}
HOST = (3e-4, 2e-5, 1e-4)


def drawn(count: int, noisy: float) -> list[Pass]:
    """Passes with true constants. noisy: this part of them took longer than they should."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(count):
        chunks = tuple(
            (int(start), int(start + length))
            for start, length in zip(
                rng.integers(0, 900, rng.integers(0, 3)), rng.integers(1, 1000, 2), strict=False
            )
        )
        decoding = int(rng.integers(0, 16)) or int(not chunks)
        one = Pass(0.0, 0.0, chunks, decoding, int(decoding * rng.integers(32, 1000)))
        host = HOST[0] + HOST[1] * (decoding + len(chunks)) + HOST[2] * len(chunks)
        device = TRUE["pass"] + TRUE["token"] * one.tokens + TRUE["pair"] * pairs_of(chunks)
        device += TRUE["row"] * one.context + TRUE["chunk"] * len(chunks)
        late = 1 + rng.exponential(0.5) if rng.random() < noisy else 1.0
        found.append(one._replace(seconds=(host + device) * late, host=host))
    return found


def error_of(passes: PassTimes) -> float:
    """The largest relative error over passes that were not fitted to, of what the kernels take."""
    worst = 0.0
    for chunks, decoding, context in (
        ([(0, 1000)], 0, 0),
        ([(0, 100)], 0, 0),
        ([(500, 700)], 4, 2000),
        ([], 1, 500),
        ([], 12, 6000),
    ):
        tokens = decoding + sum(end - start for start, end in chunks)
        true = TRUE["pass"] + TRUE["token"] * tokens + TRUE["pair"] * pairs_of(chunks)
        true += TRUE["row"] * context + TRUE["chunk"] * len(chunks)
        profile = replace(
            hardware.get("h100"), served=Served(EngineProfile("vllm"), TINY, passes, {})
        )
        times = make(MEASURED, TINY, profile)
        worst = max(worst, abs(times.step_ns(chunks, decoding, context) / true / 1e9 - 1))
    return worst


def test_constants_are_found_again() -> None:
    found = fit(drawn(400, 0.0), overlap=False)
    assert error_of(found.passes) < 0.02
    assert found.passes.pair_ns == pytest.approx(TRUE["pair"] * 1e9, rel=0.05)
    assert found.host.step_ns == pytest.approx(HOST[0] * 1e9, rel=0.02)
    assert found.host.sequence_ns == pytest.approx(HOST[1] * 1e9, rel=0.02)
    assert found.host.chunk_ns == pytest.approx(HOST[2] * 1e9, rel=0.02)
    assert float(np.median(np.abs(found.errors))) < 0.005


def test_passes_that_took_too_long_hardly_count() -> None:
    assert error_of(fit(drawn(400, 0.2), overlap=False).passes) < 0.06


def test_a_host_that_works_beside_the_kernels_is_no_part_of_them() -> None:
    ahead = [one._replace(seconds=one.seconds - one.host) for one in drawn(400, 0.0)]
    assert error_of(fit(ahead, overlap=True).passes) < 0.02


def test_no_constant_is_negative_where_more_work_took_less_time() -> None:
    falling = [Pass(0.1 - 1e-5 * n, 1e-4, ((0, n),), 0, 0) for n in range(10, 1000, 10)]
    found = fit(falling, overlap=False).passes
    assert min(found.pass_ns, found.pair_ns, found.context_ns, found.chunk_ns) >= 0
    assert list(found.tokens_ns) == sorted(found.tokens_ns)


def test_too_few_passes_are_refused() -> None:
    with pytest.raises(CallerError, match="passes: expected at least 8 to fit"):
        fit(drawn(7, 0.0), overlap=False)


def test_least_squares_without_negative_constants_is_right_where_a_plain_one_is() -> None:
    rng = np.random.default_rng(2)
    columns = rng.random((50, 3))
    found = least(columns, columns @ (1.0, 0.0, 2.0), np.ones(50))
    assert found == pytest.approx([1.0, 0.0, 2.0], abs=1e-6)


def test_the_curve_goes_through_its_points_and_on() -> None:
    passes = PassTimes(0.0, (2, 10), (4.0, 20.0), 0.0, 0.0, 0.0)
    assert [passes.of_tokens(count) for count in (0, 1, 2, 6, 10, 20)] == [0, 2, 4, 12, 20, 40]


def test_other_hardware_and_another_model_are_refused() -> None:
    h100 = hardware.get("h100")
    with pytest.raises(CallerError, match=r"times: expected --hardware .* found h100"):
        make(MEASURED, TINY, h100)
    passes = PassTimes(0.0, (2, 10), (4.0, 20.0), 0.0, 0.0, 0.0)
    profile = replace(h100, served=Served(EngineProfile("vllm"), TINY, passes, {}))
    with pytest.raises(CallerError, match="times: expected tiny on one rank"):
        make(MEASURED, models.get("llama-3.1-8b"), profile)
    with pytest.raises(CallerError, match="times: expected tiny on one rank"):
        make(MEASURED, TINY, profile, Parallelism(2))
