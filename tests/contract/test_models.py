"""What every model description owes its users, and the figures that are published."""

from __future__ import annotations

import pytest

from hicache import models
from hicache.core.errors import CallerError
from hicache.models import ModelDescription

PUBLISHED_BYTES_PER_TOKEN = {
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "qwen3-32b": 262_144,
    "deepseek-v3": 70_272,
}


def matrices(rows: list[tuple[int, int]]) -> int:
    return sum(height * width for height, width in rows)


def dense(
    *, layers: int, hidden: int, inner: int, heads: int, kv_heads: int, head: int, vocabulary: int,
    per_layer_norms: int,
) -> int:  # fmt: skip
    """Parameters of a gated dense transformer, matrix by matrix."""
    layer = matrices(
        [
            (heads * head, hidden),
            (kv_heads * head, hidden),
            (kv_heads * head, hidden),
            (hidden, heads * head),
            (inner, hidden),
            (inner, hidden),
            (hidden, inner),
        ]
    )
    return layers * (layer + per_layer_norms) + hidden + 2 * vocabulary * hidden


COUNTED = {
    "llama-3.1-8b": dense(
        layers=32, hidden=4096, inner=14336, heads=32, kv_heads=8, head=128, vocabulary=128256,
        per_layer_norms=2 * 4096,
    ),
    "llama-3.1-70b": dense(
        layers=80, hidden=8192, inner=28672, heads=64, kv_heads=8, head=128, vocabulary=128256,
        per_layer_norms=2 * 8192,
    ),
    "qwen3-32b": dense(
        layers=64, hidden=5120, inner=25600, heads=64, kv_heads=8, head=128, vocabulary=151936,
        per_layer_norms=2 * 5120 + 2 * 128,
    ),
}  # fmt: skip


@pytest.fixture(params=models.names())
def model(request: pytest.FixtureRequest) -> ModelDescription:
    return models.get(request.param)


def test_a_model_is_complete_and_consistent(model: ModelDescription) -> None:
    assert models.get(model.name) is model
    assert model.source
    assert len({pool.name for pool in model.pools}) == len(model.pools)
    assert 0 < model.layer_parameters < model.active_parameters <= model.parameters
    assert (model.active_parameters == model.parameters) == (model.experts == 0)
    assert model.experts_per_token <= model.experts
    for pool in model.pools:
        assert list(pool.layers) == sorted(set(pool.layers))
        assert 0 <= pool.layers[0] <= pool.layers[-1] < model.layers


def test_pages_are_whole_tokens_of_all_pools(model: ModelDescription) -> None:
    for tp in (1, 2, 8):
        for page_size in (1, 16, 512):
            pages = [model.bytes_per_page(name, page_size, tp) for name in model.components]
            assert sum(pages) == page_size * model.bytes_per_token(tp)


def test_bytes_per_token_are_the_published_ones() -> None:
    found = {name: models.get(name).bytes_per_token() for name in PUBLISHED_BYTES_PER_TOKEN}
    assert found == PUBLISHED_BYTES_PER_TOKEN


def test_ranks_divide_heads_until_there_is_one_each_and_never_a_latent() -> None:
    llama, deepseek = models.get("llama-3.1-8b"), models.get("deepseek-v3")
    assert [llama.bytes_per_token(tp) for tp in (2, 4, 8, 16)] == [65536, 32768, 16384, 16384]
    assert [deepseek.bytes_per_token(tp) for tp in (2, 8, 128)] == [70_272] * 3
    for tp in (0, -1, 3):
        with pytest.raises(CallerError, match="divisor or a multiple of 8 heads"):
            llama.bytes_per_token(tp)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_of_dense_models_are_those_of_their_matrices(name: str) -> None:
    assert models.get(name).parameters == COUNTED[name]


def test_parameters_of_deepseek_v3_are_those_of_its_matrices() -> None:
    attention = matrices(
        [(1536, 7168), (128 * 192, 1536), (576, 7168), (128 * 256, 512), (7168, 128 * 128)]
    )
    norms = 2 * 7168 + 1536 + 512
    expert = 3 * 2048 * 7168
    gate = 256 * 7168 + 256
    always = 61 * (attention + norms) + 3 * 3 * 18432 * 7168 + 58 * (gate + expert)
    always += 7168 + 2 * 129_280 * 7168
    model = models.get("deepseek-v3")
    assert model.parameters == always + 58 * 256 * expert
    assert model.active_parameters == always + 58 * 8 * expert
    assert model.expert_parameters == 58 * expert
    assert (model.parameters // 10**9, model.active_parameters // 10**9) == (671, 37)


def test_unknown_names_are_told_what_exists() -> None:
    with pytest.raises(CallerError, match=r"deepseek-v3.*did you mean llama-3\.1-8b"):
        models.get("llama-3-8b")
    with pytest.raises(CallerError, match="expected one of full"):
        models.get("llama-3.1-8b").bytes_per_page("swa", 64)
    with pytest.raises(CallerError, match="page_size"):
        models.get("llama-3.1-8b").bytes_per_page("full", 0)
