"""The bytes of stored weights, and the types of weights and cached rows that a user may name."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from hicache import models
from hicache.core.errors import CallerError
from hicache.models import ModelDescription

GIB = 1 << 30


@pytest.fixture(params=models.names())
def model(request: pytest.FixtureRequest) -> ModelDescription:
    return models.get(request.param)


def test_weights_have_the_bytes_of_their_published_checkpoint() -> None:
    oss = models.get("gpt-oss-120b")
    matrix, bias = 3 * 2880 * 2880, 3 * 2880
    routed = 36 * 128 * (matrix * Fraction(17, 32) + 2 * bias)  # 4 bits, a scale byte per 32
    always = oss.parameters - 36 * 128 * (matrix + bias)
    assert oss.weight_bytes == routed + 2 * always
    assert oss.weight_bytes / GIB == pytest.approx(60.8, abs=0.05)  # as its model card says
    assert oss.expert_bytes * 128 == routed
    llama = models.get("llama-3.1-8b")
    assert llama.weight_bytes == 2 * llama.parameters
    # fp8 but the embeddings; the published files have 688.6 GB with the draft module's 14 G
    assert models.get("deepseek-v3").weight_bytes / 1e9 == pytest.approx(673.0, abs=0.5)
    # experts in fp4: the files of both have about 10 GB of draft module more
    assert models.get("deepseek-v4-flash").weight_bytes / 1e9 == pytest.approx(155.5, abs=0.5)


def test_the_parts_of_the_weights_are_the_weights(model: ModelDescription) -> None:
    tables = model.embeddings * model.head_bytes
    parts = model.layer_bytes + model.experts * model.expert_bytes + tables
    assert parts == model.weight_bytes
    assert model.layer_bytes > 0
    assert bool(model.expert_bytes) == bool(model.experts)
    assert 4 <= 8 * model.weight_bytes / model.parameters <= 16
    assert not model.page_size % max(pool.compression for pool in model.pools)


def test_another_type_of_weights_changes_all_but_the_embeddings() -> None:
    llama = models.get("llama-3.1-8b")
    norms = (2 * 32 + 1) * 4096
    tables = 2 * 128_256 * 4096
    matrices = llama.parameters - tables - norms
    for dtype, bits in (
        ("bf16", 16),
        ("fp8", 8),
        ("fp8-block", 8 + 1 / 512),
        ("int4", 4.125),
        ("mxfp4", 4.25),
        ("nvfp4", 4.5),
    ):
        found = models.stored(llama, dtype)
        assert found.weight_dtype == dtype
        stay = 2 * (tables + norms)
        assert found.weight_bytes == pytest.approx(stay + matrices * bits / 8, abs=1)
        assert found.bytes_per_token() == llama.bytes_per_token()
    with pytest.raises(
        CallerError, match="weight_dtype: expected one of bf16, fp8, fp8-block, int4,"
    ):
        models.stored(llama, "int2")


def test_another_type_of_cache_changes_rows_and_neither_states_nor_index_keys() -> None:
    dtypes = {
        name: {pool.name: pool.dtype for pool in models.cached_as(models.get(name), "fp8").pools}
        for name in ("gpt-oss-120b", "deepseek-v3.2", "qwen3-next-80b-a3b", "llama-3.1-8b-eagle3")
    }
    assert dtypes == {
        "gpt-oss-120b": {"kv": "fp8", "swa": "fp8"},
        "deepseek-v3.2": {"kv": "fp8", "indexer": "fp8"},
        "qwen3-next-80b-a3b": {"kv": "fp8", "ssm": "fp32", "conv": "bf16"},
        "llama-3.1-8b-eagle3": {"kv": "fp8", "draft": "fp8"},
    }
    with pytest.raises(CallerError, match="kv_dtype: expected a model with plain rows, found deep"):
        models.cached_as(models.get("deepseek-v4-pro"), "bf16")
    with pytest.raises(CallerError, match="kv_dtype: expected one of fp32, bf16, fp16, fp8"):
        models.cached_as(models.get("llama-3.1-8b"), "int8")


def test_the_beginning_of_several_names_says_which() -> None:
    with pytest.raises(
        CallerError, match=r"'qwen3', with which qwen3-235b-a22b, qwen3-32b,.* begin; wr"
    ):
        models.get("qwen3")
    with pytest.raises(CallerError, match=r"'gemma-3-2', with which gemma-3-27b begins; write"):
        models.get("gemma-3-2")
    with pytest.raises(CallerError, match="expected one of deepseek-v3"):
        models.get("")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("weight_bytes", 2, "weight_bytes: expected the bytes of all 8030261248 stored parameters"),
        ("weight_bytes", 1 << 40, "weight_bytes: expected the bytes of all"),
        ("weight_bytes", 1 << 30, "expert_bytes: expected 0, as there are no experts, and more"),
        ("expert_bytes", 5, "expert_bytes: expected 0, as there are no experts"),
    ],
)
def test_weights_of_a_file_must_be_those_of_all_parameters(
    field: str, value: int, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.json"
    document = models.as_document(models.get("llama-3.1-8b"))
    path.write_text(json.dumps({**document, field: value}))
    with pytest.raises(CallerError, match=f"own.json: {said}"):
        models.get(str(path))
