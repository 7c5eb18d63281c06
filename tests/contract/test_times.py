"""Every time model in sim/times: whole nanoseconds that grow with the work, and the same twice."""

import pytest

from hicache import models, registry
from hicache.core.errors import CallerError
from hicache.models import TINY
from sim import hardware
from sim.times.base import Parallelism, check_ranks, make, step_ns

H100 = hardware.get("h100")
NAMES = registry.names(registry.TIMES)
NOTHING = (((), 0, 0), (((7, 7),), 0, 0))
# Each batch (chunks, sequences that decode, their context) has more work than the one before.
GROWING = (
    *(((), 1, 1), ((), 1, 4000), ((), 16, 4000), ((), 16, 64_000), (((0, 1),), 16, 64_000)),
    *((chunks, 16, 64_000) for chunks in (((0, 2000),), ((0, 2000), (1000, 1001)))),
    (((0, 2000), (0, 1001)), 16, 64_000),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_time_model_keeps_the_contract(name: str) -> None:
    try:
        entry = registry.load(registry.TIMES, name)
    except ImportError as error:
        pytest.skip(str(error))
    tried = models.get("llama-3.1-8b" if name == "aiconfigurator" else TINY.name)  # its smallest
    item, other = (entry.times(tried, H100, Parallelism(), None) for _ in range(2))
    assert item.layers == tried.layers
    assert item.label.isprintable()
    before = 0
    for batch in (*NOTHING, *GROWING):
        step, layer, overhead = (
            step_ns(item, *batch),
            item.layer_ns(*batch),
            item.overhead_ns(*batch[:2]),
        )
        assert {type(value) for value in (step, layer, overhead)} == {int}
        assert step == item.layers * layer + overhead == step_ns(other, *batch)
        assert step >= before
        assert min(layer, overhead) >= 0
        assert not step or batch not in NOTHING
        before = step


def test_ranks_are_checked_before_any_time() -> None:
    with pytest.raises(CallerError, match=r"times: expected one of .*pure-roofline"):
        make("roofing", TINY, H100)
    for more, text in (
        ({"tp": 0}, "tp: expected at least 1, found 0"),
        ({"tp": 4, "ep": 3}, "ep: expected a divisor of 4 ranks, found 3"),
        ({"tp": 4, "attention_dp": 8}, "attention_dp: expected a divisor of 4 ranks, found 8"),
    ):
        with pytest.raises(CallerError, match=text):
            Parallelism(**more)
    with pytest.raises(CallerError, match=r"dcp: expected 1 with --times pure-roofline"):
        make("pure-roofline", models.get("deepseek-v3"), H100, Parallelism(16, dcp=2))
    for name, more, message in (
        ("qwen3-next-80b-a3b", {"tp": 32}, r"cached heads \[2, 32\] or is a multiple, found 32"),
        ("deepseek-v3", {"tp": 6, "attention_dp": 2}, "128 query heads .* found 3 for a request"),
        ("gpt-oss-120b", {"tp": 8, "ep": 8, "pp": 37}, "pp: expected 1 to 36 stages, one for each"),
        (
            "deepseek-v3",
            {"tp": 96, "attention_dp": 3, "ep": 3},
            "ep: expected a divisor of the 256",
        ),
        ("llama-3.1-8b", {"tp": 32, "dcp": 8}, "dcp: expected a divisor of 4, .* found 8"),
        ("deepseek-v3", {"tp": 8, "attention_dp": 4, "dcp": 4}, "divisor of 2, .* found 4"),
        ("gpt-oss-120b", {"tp": 8, "dcp": 2}, "more than full attention"),
        ("deepseek-v3.2", {"tp": 8, "dcp": 8}, "dcp: expected 1, because deepseek-v3.2 has more"),
        ("llama-3.1-8b", {"tp": 2, "ep": 2}, "ep: expected 1, because .* found 2"),
    ):
        with pytest.raises(CallerError, match=message):
            check_ranks(models.get(name), Parallelism(**more))
