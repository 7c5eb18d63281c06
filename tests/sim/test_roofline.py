"""The roofline: what every time must obey, and its magnitudes (its times to the nanosecond are
golden). Nothing to compute takes no time; more work never takes less; no pass is faster than its
bytes and operations at the peak rates; the number of experts that are touched is that of theory.
"""

from dataclasses import replace
from itertools import product

from hicache import models
from sim import hardware
from sim.engine_profiles import EngineProfile
from sim.physics import Experts, Kernel, defaults, family
from sim.times.base import Parallelism
from sim.times.roofline import Roofline

from .test_costs import batches

PLAIN = EngineProfile("plain")
_EAGER = EngineProfile("eager", launch_ns=90_000, graph_batch=20, graph_tokens=60, logit_passes=7)
_NCCL = EngineProfile("nccl", all_reduce="nccl", device_permille=1070)
_FUSED = EngineProfile("fused", all_reduce="fused", launch_ns=400)
_SETUPS: tuple[tuple[str, str, dict[str, int], EngineProfile], ...] = (
    ("llama-3.1-8b", "h100", {}, PLAIN),
    ("llama-3.1-8b", "a100", {"tp": 2}, _EAGER),
    ("llama-3.1-70b", "b200", {"tp": 4, "pp": 2}, _NCCL),
    ("qwen3-32b", "h200", {"tp": 8}, _FUSED),
    ("gpt-oss-120b", "h100", {"tp": 2}, _EAGER),
    ("gemma-3-27b", "h100", {"tp": 2, "attention_dp": 2}, PLAIN),
    ("qwen3-next-80b-a3b", "b200", {"tp": 4, "ep": 4}, _NCCL),
    ("deepseek-v3", "b200", {"tp": 8, "ep": 8, "attention_dp": 8}, PLAIN),
    ("deepseek-v3", "h200", {"tp": 16, "ep": 4, "attention_dp": 2}, _FUSED),
    ("deepseek-v3", "h200", {"tp": 16, "ep": 4, "attention_dp": 2, "dcp": 4}, _EAGER),
    ("llama-3.1-70b", "b200", {"tp": 16, "dcp": 2}, PLAIN),
    ("deepseek-v3.2", "b200", {"tp": 8, "pp": 2, "attention_dp": 4}, _EAGER),
)


def test_no_pass_is_faster_than_the_peaks() -> None:
    """A pass takes at least its operations and at least its bytes at the peak rates, and one of
    kernels without losses the sum of the longer of both."""
    ideal = {kind: Kernel(0.0, 1.0, 1.0, 200.0) for kind in defaults("hopper")}
    for name, gpu, ranks, engine in _SETUPS:
        profile, parallelism = hardware.get(gpu), Parallelism(**ranks)
        perfect = Roofline(models.get(name), profile, parallelism, PLAIN, ideal)
        real = Roofline(models.get(name), profile, parallelism, engine, defaults(family(profile)))
        for batch in batches(4):
            works = [work for part in perfect.works(*batch) for work in part]
            longest = sum(max(work.compute_ns, work.moved_ns) for work in works)
            assert min((min(work[1:]) for work in works), default=0) >= 0
            for total in (sum(each.compute_ns for each in works), sum(each[3] for each in works)):
                assert perfect.step_ns(*batch) >= total - perfect.layers
                assert real.step_ns(*batch) >= total - real.layers
            assert longest - perfect.layers <= perfect.step_ns(*batch)
            assert perfect.step_ns(*batch) <= longest * 1.004 + perfect.layers


def test_touched_experts_are_those_of_theory() -> None:
    """By trying every choice of few experts; and between one token's and all of them."""
    for count, chosen, tokens in ((4, 1, 3), (4, 2, 2), (5, 3, 2), (3, 1, 5)):
        experts = Experts("experts.bf16", 1, count, chosen, 1.0, 1.0, 1.0)
        sets = [each for each in product((0, 1), repeat=count) if sum(each) == chosen]
        tried = [*product(sets, repeat=tokens)]
        touched = sum(sum(map(any, zip(*each, strict=True))) for each in tried)
        assert abs(experts.touched(tokens) - touched / len(tried)) < 1e-9
    for choice in (0.3, 1.0, 1.7):
        many = Experts("experts.bf16", 1, 128, 4, 1.0, 1.0, 1.0)
        numbers = [many.touched(tokens, choice) for tokens in (0, 1, 2, 5, 40, 400, 90_000)]
        assert numbers[0] == 0
        assert numbers[1] >= 4
        assert numbers == sorted(numbers)
        assert numbers[-1] <= 128


def test_more_ranks_share_the_work() -> None:
    """Twice the ranks never give one of them more operations, nor more bytes of its memory."""
    for name, gpu in (("llama-3.1-70b", "h200"), ("deepseek-v3", "b200"), ("gpt-oss-120b", "h100")):
        roomy = replace(hardware.get(gpu), hbm_bytes=1 << 50)
        for batch in batches(4):
            before = [float("inf")] * 2
            for tp in (1, 2, 4, 8):
                known = defaults(family(roomy))
                roofline = Roofline(models.get(name), roomy, Parallelism(tp), PLAIN, known)
                work = [each for part in roofline.works(*batch) for each in part]
                own = [each for each in work if each.kind.split(".")[0] not in _SENT]
                items = [sum(each.compute_ns for each in own), sum(each.moved_ns for each in own)]
                pairs = zip(items, before, strict=True)
                assert all(now <= then for now, then in pairs), f"{name}, {tp} ranks: {batch}"
                sent = [each for each in work if each.kind.split(".")[0] in _SENT]
                assert bool(sent) == (tp > 1 and bool(work))
                before = items


_SENT = ("custom", "all_gather")
