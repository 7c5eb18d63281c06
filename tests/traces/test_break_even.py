"""The break-even bandwidth against Mooncake's closed form (FAST 2025, Eq. 1 and 2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hicache.models as models
import sim.hardware.profile as hardware
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from traces.deciding.break_even import break_even, closed_form

HIDDEN, GQA = 8192, 8  # LLaMA 3 70B


@pytest.mark.parametrize(("gpu_flops_per_s", "published"), [(312e12, 6), (989e12, 19)])
def test_the_closed_form_gives_the_published_figures(
    gpu_flops_per_s: float, published: int
) -> None:
    """The paper: 6 GB/s on eight A800, 19 GB/s on eight H800, for a prefix of 8,192 tokens."""
    found = closed_form(HIDDEN, GQA, 2, 8192, 8 * gpu_flops_per_s)
    assert round(found / 1e9) == published


def test_the_form_is_bytes_over_operations() -> None:
    """Eq. 1 and 2: bytes and operations of the prefix, by layers, cancel to the form."""
    layers, prefix, flops_per_s = 80, 8192, 2e15
    operations = layers * (4 * prefix**2 * HIDDEN + 22 * prefix * HIDDEN**2)
    size = prefix * layers * 2 * HIDDEN / GQA * 2
    expected = size / (operations / flops_per_s)
    assert closed_form(HIDDEN, GQA, 2, prefix, flops_per_s) == pytest.approx(expected)


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
    expected = closed_form(HIDDEN, GQA, 2, prefix, tp * profile.reached_flops_per_s, a=2, b=b)
    assert found.bandwidth_bytes_per_s == pytest.approx(expected, rel=0.001)
    assert found.bytes_per_token == 80 * 2 * HIDDEN // GQA * 2


def test_the_sentence_says_whether_loading_pays() -> None:
    model, profile = dense(), hardware.get("h100")
    found = break_even(model, profile, 8, 8192)
    assert found.pays
    assert found.link_bytes_per_s == 8 * profile.reached_link_bytes_per_s
    assert found.sentence().endswith("so loading pays.")
    slow = break_even(model, profile, 8, 8192, link_bytes_per_s=found.bandwidth_bytes_per_s / 2)
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
