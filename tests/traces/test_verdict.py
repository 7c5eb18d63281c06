"""The verdict on points whose answer is known by construction; the break-even bandwidth against
Mooncake's closed form (FAST 2025, Eq. 1 and 2)."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hicache.models as models
import sim.hardware.profile as hardware
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from traces.deciding.break_even import break_even
from traces.deciding.buys import HOST, line
from traces.deciding.measured import SAME, differ, measured, span
from traces.deciding.prices import Prices, read_prices
from traces.deciding.serving import Served, accuracy, serves
from traces.deciding.verdict import Verdict, decide

TOKENS = 1_000_000
CEILING = 0.5


def point(
    label: str,
    host: float = 0,
    hits: float = 0.2,
    times: tuple[float, float, float] | None = (0.2, 0.1, 0.7),
    goodput: float | None = None,
    attained: float | None = None,
    busy: float = 0.1,
    **config: Any,
) -> dict[str, Any]:
    """A point with `host` GB, a share of hits, and the parts of the time to first token: queue,
    load and compute."""
    settings = {
        "tp": 1,
        "speed": 1.0,
        "hardware": "h100",
        "host_bandwidth": "1x",
        "device_tokens": 100_000,
        "host_tokens": int(host * 10_000),
        "host_pages": int(host * 100),
        "write_policy": "write_through",
        "exclusive": False,
    }
    found: dict[str, Any] = {
        "label": label,
        "config": settings | config,
        "whole": {
            "input_tokens": TOKENS,
            "hit_tokens": {"device": int(hits * TOKENS), "host": 0, "storage": 0},
            "ceiling_tokens": int(CEILING * TOKENS),
        },
        "components": {"full": {"pool_bytes_total": {"device": 80e9, "host": host * 1e9}}},
        "transfers": {"h2d": {"busy_s": busy * 100}, "d2h": {"busy_s": 1.0}},
    }
    if times is not None:
        queue, load, compute = times
        ttft = {"mean": sum(times), "p90": 2 * sum(times)}
        parts = {"queue": queue, "load": load, "compute": compute}
        found["latency_s"] = {
            "ttft": ttft,
            **{name: {"mean": value} for name, value in parts.items()},
            "makespan": 100.0,
        }
        found["load"] = {"offered": 1.5 if queue > 0.5 else 1.0}
        found["output"] = {"tokens_per_s": 100.0}
    if goodput is not None:
        found["slo"] = {"goodput_requests_per_s": goodput, "attained_rate": attained}
    return found


def curve(optimum: float, working_set: int = 6_000_000) -> dict[str, Any]:
    """A curve whose optimum hits this share at one million tokens, and all that repeats at two."""
    hits = [int(optimum * TOKENS), int(CEILING * TOKENS)]
    return {
        "policies": {"lru": {"hit_tokens": [0, 0]}, "optimum": {"hit_tokens": hits}},
        "capacities_tokens": [1_000_000, 2_000_000],
        "input_tokens": TOKENS,
        "working_set_tokens": working_set,
        "bytes_per_token": 100_000,
    }


def top(verdict: Verdict) -> str:
    return verdict.limits[0].resource


HITS_ONLY = [point("none", 0, 0.1, times=None), point("some", 100, 0.2, times=None)]


def test_working_set_binds_where_all_that_repeats_is_hit() -> None:
    points = [point("none", 0, 0.1, times=None), point("all", 100, CEILING, times=None)]
    found = decide(points, curve(CEILING))
    assert [limit.resource for limit in found.limits] == ["working_set"]
    assert found.limits[0].evidence[-1].value == pytest.approx(600)
    assert found.sentences[0] == (
        "100 GB of host memory: hit rate 10 -> 50 %; nothing larger was tried; limit: what prompts "
        "repeat, of which nearly all is hit (600 GB hold it)."
    )


def test_capacity_binds_where_the_optimum_hits_no_more_with_this_memory() -> None:
    found = decide(HITS_ONLY, curve(0.21))
    assert (top(found), found.best) == ("capacity", "some")
    assert found.limits[0].strength == pytest.approx(0.29 / 0.5)


def test_policy_binds_where_the_optimum_hits_more_with_this_memory() -> None:
    found = decide(HITS_ONLY, curve(0.45))
    assert top(found) == "policy"
    assert found.limits[0].strength == pytest.approx(0.25 / 0.5)
    assert "would hit 45.0 % and not 20.0 %" in found.limits[0].sentence


def test_without_an_optimum_all_that_was_lost_is_capacity() -> None:
    assert [limit.resource for limit in decide(HITS_ONLY).limits] == ["capacity"]
    below = {**curve(0.45), "capacities_tokens": [1_000_001, 2_000_000]}
    assert [limit.resource for limit in decide(HITS_ONLY, below).limits] == ["capacity"]


@pytest.mark.parametrize(
    ("times", "busy", "resource"),
    [
        ((0.1, 0.8, 0.1), 0.2, "tier_bandwidth"),
        ((0.1, 0.1, 0.8), 0.98, "tier_bandwidth"),
        ((0.1, 0.1, 0.8), 0.2, "compute"),
        ((0.8, 0.1, 0.1), 0.2, "load"),
    ],
)
def test_the_largest_part_of_the_time_to_first_token_binds(
    times: tuple[float, float, float], busy: float, resource: str
) -> None:
    found = decide([point("one", 100, CEILING - 0.1, times, busy=busy)])
    assert top(found) == resource
    assert found.limits[0].strength == pytest.approx(busy if busy > 0.9 else 0.8)
    told = json.loads(json.dumps(found.document()))
    assert told["limits"][0]["evidence"][0]["label"] == "one"
    assert all(one in told["evidence"] for limit in told["limits"] for one in limit["evidence"])


def ladder() -> list[dict[str, Any]]:
    """Hits and times improve up to 200 GB; 400 GB add nothing."""
    return [
        point("none", 0, 0.10, (1.0, 0.1, 1.4), goodput=2.0, attained=0.6),
        point("100 GB", 100, 0.30, (0.5, 0.1, 1.0), goodput=2.8, attained=0.8),
        point("200 GB", 200, 0.40, (0.2, 0.1, 0.7), goodput=3.0, attained=0.97),
        point("400 GB", 400, 0.405, (0.2, 0.1, 0.69), goodput=3.0, attained=0.97),
        point("400 GB, 2x", 400, 0.405, (0.2, 0.0, 0.69), goodput=3.2, host_bandwidth="2x"),
        point("none, 2 GPUs", 0, 0.10, (0.1, 0.0, 0.7), goodput=4.4, attained=0.99, tp=2),
        point("none, fast", 0, 0.10, (3.0, 0.1, 1.4), goodput=1.5, speed=2.0),
        point("200 GB, fast", 200, 0.40, (0.6, 0.1, 0.9), goodput=4.5, speed=2.0),
    ]


def test_the_best_point_is_the_least_memory_that_is_nearly_as_good() -> None:
    found = decide(ladder(), slo={"ttft_s": 2.0, "tpot_s": 0.05})
    assert found.best == "200 GB"
    # goodput is compared over the loads that both have: 4.5 against 2.0
    assert found.sentences[0].startswith(
        "200 GB of host memory: hit rate 10 -> 40 %, p90 TTFT 5.00 -> 2.00 s, 2.2 x goodput; "
        "beyond 200 GB hardly anything, up to 400 GB; limit: "
    )
    assert "97.0 % of the requests keep TTFT 2 s and TPOT 50 ms" in " ".join(found.sentences)


def test_each_step_around_the_best_point_is_divided_by_its_size() -> None:
    told = decide(ladder()).document()["buys"]
    bought = {(one["from"]["label"], one["to"]["label"]): one for one in told}
    assert set(bought) == {
        ("100 GB", "200 GB"),
        ("200 GB", "400 GB"),
        ("400 GB", "400 GB, 2x"),
        ("none", "none, 2 GPUs"),
    }
    host = bought["100 GB", "200 GB"]
    assert host["resource"] == "host_gigabyte"
    assert host["per_unit"]["hit_rate"] == pytest.approx(0.001)
    assert host["per_unit"]["ttft_p90_s"] == pytest.approx(-0.012)
    assert host["per_unit"]["goodput_requests_per_s"] == pytest.approx(0.002)
    link = bought["400 GB", "400 GB, 2x"]
    reached = hardware.get("h100").reached_link_bytes_per_s / 1e9
    assert link["to"]["amount"] == pytest.approx(2 * reached)
    assert link["per_unit"]["goodput_requests_per_s"] == pytest.approx(0.2 / reached)
    gpu = bought["none", "none, 2 GPUs"]
    assert (gpu["unit"], gpu["per_unit"]["goodput_requests_per_s"]) == ("GPU", pytest.approx(2.4))
    assert "hardly anything changes" in bought["200 GB", "400 GB"]["sentence"]
    assert "each GPU brings" in gpu["sentence"]
    # of a long step, so much that its figures can be read
    assert "each 100 GB bring +10 points" in host["sentence"]


def test_prices_choose_the_point_with_the_most_goodput_for_its_cost() -> None:
    cheap_gpus = decide(ladder(), prices=Prices({"gpu": 0.1, "host": 1.0}))
    assert cheap_gpus.best == "none, 2 GPUs"
    cheap_memory = decide(ladder(), prices=Prices({"gpu": 10.0, "host": 0.001}))
    assert cheap_memory.best == "200 GB"
    step = cheap_memory.document()["buys"][0]
    assert step["price_per_hour"] == 0.001
    assert step["goodput_per_cost"] == pytest.approx(3.0 * 3600 / 10.2)
    assert "costs 10.2 an hour (prices of gpu, host) and serves 1,059" in " ".join(
        cheap_memory.sentences
    )
    assert cheap_memory.sentences[-1].endswith(
        "the most of the points where 90 % of the requests keep them."
    )
    short = [point("none", 0, 0.1, goodput=1.0, attained=0.5)]
    assert (
        decide(short, prices=Prices({"gpu": 1})).sentences[-1].endswith("of the points compared.")
    )
    assert "Prices need goodput" in " ".join(decide(HITS_ONLY, prices=Prices({"gpu": 1})).sentences)


def test_without_prices_more_gpus_that_keep_the_limits_are_named() -> None:
    points = [point("none", 0, 0.1, goodput=1.0, attained=0.85)]
    points.append(point("2 GPUs", 0, 0.1, goodput=1.2, attained=0.94, tp=2))
    told = "94.0 % keep them with 2 GPUs: without --price, sizes of host memory are compared"
    found = decide(points, slo={"ttft_s": 2.0})
    assert found.best == "none"
    assert [one for one in found.sentences if one.startswith(told)]
    for same in (
        decide(points, slo={"ttft_s": 2.0}, prices=Prices({"gpu": 1})),
        decide([points[0] | {"slo": points[1]["slo"]}, points[1]], slo={"ttft_s": 2.0}),
        decide(points),
    ):
        assert not [one for one in same.sentences if "without --price" in one]


def test_no_figure_is_given_outside_of_the_points() -> None:
    found = [measured(one) for one in ladder()[:4]]
    ordered = line(found, found[0], HOST)
    assert [one.label for one in ordered] == ["none", "100 GB", "200 GB", "400 GB"]
    last = decide(ladder()[:3]).sentences[0]
    assert "nothing larger was tried" in last


def test_nothing_was_replayed() -> None:
    found = decide([])
    assert found.sentences == ("No point was replayed to its end.",)
    assert (found.best, found.limits, found.buys) == (None, (), ())


def test_of_prompts_that_never_repeat_memory_is_not_said_to_bind() -> None:
    alone = point("2 GPUs", 0, 0.0, (0.1, 0.0, 0.7), goodput=3.0, attained=1.0, tp=2)
    alone["whole"]["ceiling_tokens"] = 0
    found = decide([alone])
    assert found.sentences[0] == (
        "2 GPUs: hit rate 0 %, p90 TTFT 1.60 s, goodput 3 requests/s. No prompt begins like an "
        "earlier one."
    )
    assert [limit.resource for limit in found.limits] == ["compute", "load"]


def test_no_memory_is_enough_where_memory_brings_nothing() -> None:
    found = decide([point("none", 0, 0.1), point("more", 100, 0.105)])
    assert found.best == "none"
    assert found.sentences[0].startswith(
        "Host memory brings little: without it hit rate 10 %, p90 TTFT 2.00 s; beyond that "
        "hardly anything, up to 100 GB"
    )


# -- what chance does


def repeated(one: dict[str, Any], ttft_p90_s: list[float], goodput: list[float]) -> dict[str, Any]:
    """The point as it is after several replays."""
    return one | {
        "replays": {
            "seeds": [1, 2, 3],
            "hit_rate": [0.1, 0.1, 0.1],
            "ttft_p50_s": [time / 4 for time in ttft_p90_s],
            "ttft_p90_s": ttft_p90_s,
            "attained_rate": [0.9, 0.9, 0.9],
            "goodput_requests_per_s": goodput,
        }
    }


def test_ranges_that_meet_are_told_as_no_difference() -> None:
    """Of a chaotic replay: the same memory looks better once, and worse once."""
    none = repeated(point("none", 0, 0.30, goodput=2.0), [8.7, 11.5, 16.6], [1.9, 2.0, 2.2])
    some = repeated(point("64 GB", 64, 0.40, goodput=2.3), [8.1, 15.6, 11.7], [2.0, 2.3, 2.4])
    found = decide([none, some])
    assert found.best == "none"
    assert "p90 TTFT 11.5 (8.70 to 16.6) s" in found.sentences[0]
    assert f"with p90 TTFT 11.7 (8.10 to 15.6) s, {SAME}" in found.sentences[0]
    step = next(one for one in found.document()["buys"] if one["resource"] == "host_gigabyte")
    assert SAME in step["sentence"]
    assert "goodput" not in step["sentence"]


def test_ranges_that_are_apart_are_told_as_they_are() -> None:
    none = repeated(point("none", 0, 0.10), [5.0, 5.2, 5.1], [1.0, 1.1, 1.0])
    some = repeated(point("1 TB", 1000, 0.40), [2.0, 2.2, 2.1], [1.5, 1.54, 1.5])
    found = decide([none, some])
    assert found.best == "1 TB"
    assert found.sentences[0].startswith(
        "1 TB of host memory: hit rate 10 -> 40 %, p50 TTFT 1.27 (1.25 to 1.30) -> 0.53 (0.50 to "
        "0.55) s, p90 TTFT 5.10 (5.00 to 5.20) -> 2.10 (2.00 to 2.20) s, 1.50 (1.40 to 1.50) x "
        "goodput"
    )


def test_a_point_that_was_replayed_once_has_the_range_of_the_other() -> None:
    assert differ([1.0], [1.01])
    assert not differ([1.0, 1.2, 1.4], [1.5])
    assert differ([1.0, 1.2, 1.4], [1.7])
    assert not differ([1.0, 1.2], [1.2, 1.4])
    assert not differ([], [1.0])
    assert span([3.0, 1.0, 2.0], str) == "2.0 (1.0 to 3.0)"
    assert span([3.0], str) == "3.0"


# -- the load that is served


@pytest.mark.parametrize(
    ("attained", "idle", "queueing", "overloaded", "good"),
    [
        (0.85, 0.94, 0.9, True, True),
        (0.84, 0.94, 0.0, False, False),
        (0.90, None, 0.9, True, True),
        (0.89, None, 0.0, False, False),
        (0.0, 0.0, 0.2, False, True),  # no load could keep these limits, so the queue decides
        (None, None, 0.5, False, True),
        (None, None, 0.51, False, False),
        (None, None, 0.4, True, False),
    ],
)
def test_one_rule_says_which_load_is_served(
    attained: float | None, idle: float | None, queueing: float, overloaded: bool, good: bool
) -> None:
    one: dict[str, Any] = {"load": {"queueing_share": queueing, "overloaded": overloaded}}
    one["slo"] = None if attained is None else {"attained_rate": attained}
    assert serves(one, idle) is good


def test_the_verdict_names_the_load_that_each_machine_serves() -> None:
    limits = [
        Served("no host memory", Fraction("0.16"), Fraction("0.167")),
        Served("8 TB host", Fraction("0.24"), None),
    ]
    found = decide(ladder(), served=limits)
    assert found.sentences[1] == (
        "The largest load that is served: 0.16 x the speed of the trace with no host memory "
        "(0.167 x is not); 0.24 x the speed of the trace with 8 TB host (the largest that was "
        "tried), 1.50 times as much."
    )
    assert found.document()["served"][0] == {
        "amount": "no host memory",
        "served": 0.16,
        "refused": 0.167,
    }
    assert accuracy(limits).endswith("searched to within 5 %.")
    assert not accuracy(limits[1:])
    nobody = decide(ladder(), served=[Served("2 GPUs", None, Fraction("0.01"))])
    assert "none that was tried with 2 GPUs, not even 0.01 x" in nobody.sentences[1]
    assert nobody.sentences[1].endswith("or the load (--speed, --concurrency).")


def test_a_point_is_no_answer_where_nothing_meets_the_limits() -> None:
    points = [point("none", 0, 0.1, goodput=0.1, attained=0.02, speed=0.3)]
    points.append(point("2 GPUs", 0, 0.1, goodput=0.1, attained=0.05, speed=0.3, tp=2))
    first = decide(points, slo={"ttft_s": 2.0}).sentences[0]
    assert first == (
        "Nothing that was tried meets the limits at 0.3 x the speed of the trace: at most 5.0 % of "
        "the requests keep TTFT 2 s (2 GPUs)."
    )
    assert not decide(points).sentences[0].startswith("Nothing")
    assert not decide(points, slo={"ttft_s": 2.0}, idle=0.05).sentences[0].startswith("Nothing")


def test_nine_tenths_of_the_hits_are_read_off_the_exact_curve() -> None:
    exact = curve(0.45) | {"page_size": 64, "tiers": {"nine_tenths_host_pages": 1_000}}
    told = [one for one in decide(ladder(), exact).sentences if "Nine tenths" in one]
    assert told == [
        "Nine tenths of the hits that host memory can add come with 6.4 GB (exact curve)."
    ]
    assert not [one for one in decide(ladder()).sentences if "Nine tenths" in one]


@pytest.mark.one_in(16)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6),
    st.booleans(),
)
def test_figures_that_only_improve_never_give_a_loss(
    gains: list[tuple[int, int]], timed: bool
) -> None:
    """More memory, never fewer hits, never more time: no step costs hits, time or goodput."""
    points, hits, saved = [], 0, 0
    for place, (more, less) in enumerate(gains):
        hits, saved = min(500, hits + more), saved + less
        times = (1.0 - saved / 1000, 0.0, 1.0) if timed else None
        goodput = float(saved) if timed else None
        points.append(point(str(place), 10.0 * place, hits / 1000, times, goodput, 1.0))
    found = decide(points)
    for step in found.document()["buys"]:
        per_unit = step["per_unit"]
        assert per_unit["hit_rate"] >= 0
        assert (per_unit["ttft_p90_s"] or 0) <= 0
        assert (per_unit["goodput_requests_per_s"] or 0) >= 0
    shares = [limit.strength for limit in found.limits]
    assert all(0 <= share <= 1 for share in shares)
    assert shares == sorted(shares, reverse=True)
    assert found.best in {one["label"] for one in points}


@pytest.mark.one_in(8)
@given(st.floats(0, 1), st.floats(0.2, 0.5))
def test_the_parts_of_what_repeats_add_up(optimum: float, hits: float) -> None:
    found = decide([point("one", 100, hits, times=None)], curve(min(optimum, CEILING)))
    known = {limit.resource: limit.strength for limit in found.limits}
    lost = 1 - int(hits * TOKENS) / (CEILING * TOKENS)
    if "working_set" in known:
        assert known == {"working_set": pytest.approx(1 - lost)}
    else:  # a limit below a twentieth is not named
        assert sum(known.values()) == pytest.approx(lost, abs=0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu", "expected prices of gpu, host, storage, link such as"),
        ("ram=3/GB", "found 'ram=3/GB'"),
        ("gpu=1/h,gpu=2/h", "expected one price of gpu, found two"),
        ("host=3", "expected host=AMOUNT/GB or host=AMOUNT/GB/h, found host=3"),
        ("gpu=-1/h", "expected gpu=AMOUNT or gpu=AMOUNT/h"),
        ("gpu=1/h,years=0", "expected years above 0 such as 4, found '0'"),
    ],
)
def test_bad_prices_are_refused(text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        read_prices(text)
    assert said in str(refused.value)


HIDDEN, GQA = 8192, 8  # LLaMA 3 70B


def closed_form(prefix_tokens: int, flops_per_s: float, a: float = 4, b: float = 22) -> float:
    """Bytes per second of the break-even, as Mooncake estimates it for dense models. a: of the
    attention without the causal mask. b: of LLaMA 3 70B."""
    work = GQA * (a * prefix_tokens * HIDDEN + b * HIDDEN**2)
    return 2 * HIDDEN * 2 / work * flops_per_s


@pytest.mark.parametrize(("gpu_flops_per_s", "published"), [(312e12, 6), (989e12, 19)])
def test_the_closed_form_gives_the_published_figures(
    gpu_flops_per_s: float, published: int
) -> None:
    """The paper: 6 GB/s on eight A800, 19 GB/s on eight H800, for a prefix of 8,192 tokens."""
    found = closed_form(8192, 8 * gpu_flops_per_s)
    assert round(found / 1e9) == published


def dense() -> ModelDescription:
    model = models.get("llama-3.1-70b")
    assert model.attention_heads * model.value_elements == HIDDEN
    return model


@pytest.mark.parametrize("prefix", [2048, 8192, 65536])
@pytest.mark.parametrize("name", ["a100", "h100"])
def test_a_dense_model_agrees_with_the_form(name: str, prefix: int) -> None:
    """With the parameters that the model really has for b, and half of a, as the mask is causal;
    the memory of the accelerator is made fast, since the form knows compute alone, and one rate of
    it, as `pure-roofline` does."""
    model, tp = dense(), 8
    profile = replace(hardware.get(name), hbm_bytes_per_s=10**15)
    found = break_even(model, profile, tp, prefix, time_model="pure-roofline")
    b = 2 * model.layer_parameters / model.layers / HIDDEN**2
    expected = closed_form(prefix, tp * profile.reached_flops_per_s, a=2, b=b)
    assert found.bandwidth_bytes_per_s == pytest.approx(expected, rel=0.001)
    assert found.bytes_per_token == 80 * 2 * HIDDEN // GQA * 2


def test_the_sentence_says_whether_loading_pays() -> None:
    model, profile = dense(), hardware.get("h100")
    found = break_even(model, profile, 8, 8192)
    assert found.pays
    assert found.link_bytes_per_s == 8 * profile.reached_link_bytes_per_s
    assert found.sentence().endswith("so loading pays.")
    slow = replace(found, link_bytes_per_s=found.bandwidth_bytes_per_s / 2)
    assert not slow.pays
    assert "2 times less, so loading does not pay." in slow.sentence()
    told = slow.document()
    assert told["sentence"] == slow.sentence()
    assert told["bandwidth_bytes_per_s"] == slow.bandwidth_bytes_per_s


def test_longer_prefixes_need_less_bandwidth() -> None:
    found = [
        break_even(dense(), hardware.get("h100"), 8, prefix).bandwidth_bytes_per_s
        for prefix in (4096, 16384, 65536, 262144)
    ]
    assert found == sorted(found, reverse=True)


def test_a_prefix_without_tokens_is_refused() -> None:
    with pytest.raises(CallerError, match="expected at least 1 token, found 0"):
        break_even(dense(), hardware.get("h100"), 8, 0)
