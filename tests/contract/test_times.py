"""Every time model in sim/times keeps the contract, and the contract finds one that does not."""

from __future__ import annotations

import pytest

from hicache import models, registry
from hicache.core.errors import CallerError
from hicache.models import TINY, ModelDescription
from sim.engine_profiles.base import EngineProfile
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.times.base import Chunks, Parallelism, check_ranks, make
from tests.contract.contracts.times import wrong

H100 = hardware.get("h100")
NAMES = registry.names(registry.TIMES)


class Plain:
    """100 ns for each token and layer."""

    def __init__(
        self,
        model: ModelDescription,
        hardware: HardwareProfile,
        parallelism: Parallelism,
        engine: EngineProfile | None,
    ) -> None:
        self.layers = model.layers
        self.label = "100 ns a token"

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        return 100 * (decoding + context + sum(end - start for start, end in chunks))

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        return 0

    def step_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        return self.layers * self.layer_ns(chunks, decoding, context)


class Falling(Plain):
    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        return 100_000_000 - context if decoding else super().layer_ns(chunks, 0, 0)


class Started(Plain):
    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        return 5


class Fractions(Plain):
    def overhead_ns(self, chunks: Chunks, decoding: int) -> float:  # type: ignore[override]
        return 0.5


@pytest.mark.parametrize("name", NAMES)
def test_a_time_model_keeps_the_contract(name: str) -> None:
    try:
        entry = registry.load(registry.TIMES, name)
    except ImportError as error:
        pytest.skip(str(error))
    tried = models.get("llama-3.1-8b" if name == "aiconfigurator" else TINY.name)  # its smallest
    assert wrong(entry.times, tried, H100) == ""


def test_the_contract_takes_a_plain_one_and_finds_the_others() -> None:
    assert wrong(Plain) == ""
    assert wrong(Falling).startswith("expected at least 399999996 ns")
    assert "x 0 + 5 ns" in wrong(Started)
    assert wrong(Fractions).startswith("expected whole nanoseconds")


def test_ranks_are_checked_before_any_time() -> None:
    with pytest.raises(CallerError, match=r"times: expected one of .*pure-roofline"):
        make("roofing", TINY, H100)
    for more, said in (
        ({"tp": 0}, "tp: expected at least 1, found 0"),
        ({"tp": 4, "ep": 3}, "ep: expected a divisor of 4 ranks, found 3; use 1, 2 or 4"),
        ({"tp": 4, "attention_dp": 8}, "attention_dp: expected a divisor of 4 ranks, found 8"),
    ):
        with pytest.raises(CallerError, match=said):
            Parallelism(**more)
    with pytest.raises(CallerError, match=r"dcp: expected 1 with --times pure-roofline"):
        make("pure-roofline", models.get("deepseek-v3"), H100, Parallelism(16, dcp=2))
    for name, more, said in (
        (
            "qwen3-next-80b-a3b",
            {"tp": 32},
            "its 2 or 32 cached heads, found 32; use 1, 2, 4, 8 or 16",
        ),
        ("deepseek-v3", {"tp": 6, "attention_dp": 2}, "found 6 for 2 groups, 3 for each; use 2, 4"),
        ("gpt-oss-120b", {"tp": 8, "ep": 8, "pp": 37}, "pp: expected 1 to 36 stages, one for each"),
        (
            "deepseek-v3",
            {"tp": 96, "attention_dp": 3, "ep": 3},
            "ep: expected a divisor of the 256",
        ),
        ("llama-3.1-8b", {"tp": 32, "dcp": 8}, "dcp: expected a divisor of 4, .* use 1, 2 or 4"),
        ("deepseek-v3", {"tp": 8, "attention_dp": 4, "dcp": 4}, "divisor of 2, .* with 2 for each"),
        ("gpt-oss-120b", {"tp": 8, "dcp": 2}, "more than full attention .* leave it out"),
        ("deepseek-v3.2", {"tp": 8, "dcp": 8}, "dcp: expected 1, because deepseek-v3.2 has more"),
        ("llama-3.1-8b", {"tp": 2, "ep": 2}, "ep: expected 1, because .* found 2; leave it out"),
    ):
        with pytest.raises(CallerError, match=said):
            check_ranks(models.get(name), Parallelism(**more))
