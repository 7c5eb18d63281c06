"""The matrices of every described model are all of its parameters and bytes; the types of weights
and cached rows that a user may name."""

import pytest

from hicache import models
from hicache.core.errors import CallerError


def types(name: str, precision: str) -> dict[str, str]:
    """The type of each part of the model's checkpoint of a precision."""
    checkpoint = models.checkpoint(models.get(name), precision)
    return {item.part: item.dtype for item in checkpoint.matrices}


def test_a_checkpoint_has_the_types_that_its_publisher_chose() -> None:
    kept = {"router": "bf16", "other": "bf16"}
    fp4, block = "nvfp4", "fp8-block"
    for name, precision, message in (
        ("llama-3.1-70b", "bf16", {"attention": "bf16", "mlp": "bf16"}),
        ("llama-3.1-70b", "fp4", {"attention": fp4, "mlp": fp4}),
        ("qwen3-32b", "fp8", {"attention": "fp8", "mlp": "fp8"}),
        ("qwen3-8b", "int4", {"attention": "int4", "mlp": "int4"}),
        ("deepseek-v3", "fp8", {"attention": block, "mlp": block, "experts": block}),
        ("deepseek-v3", "fp4", {"attention": "bf16", "mlp": fp4, "experts": fp4}),
        ("qwen3.5-397b-a17b", "fp8", {"attention": block, "mlp": block, "experts": block}),
        ("qwen3.5-397b-a17b", "fp4", {"attention": "bf16", "mlp": "bf16", "experts": fp4}),
        ("qwen3-235b-a22b", "fp8", {"attention": block, "experts": block}),
        ("gpt-oss-120b", "fp4", {"attention": "bf16", "experts": "mxfp4"}),
        ("gpt-oss-120b", "nvfp4", {"attention": "bf16", "experts": fp4}),
        ("deepseek-v4-pro", "nvfp4", {"attention": block, "mlp": block, "experts": fp4}),
    ):
        result = types(name, precision)
        message |= {part: dtype for part, dtype in kept.items() if part in result}
        assert result == message, (name, precision)
    published = models.get("deepseek-v3")
    assert models.checkpoint(published, "fp8") == published
    with pytest.raises(CallerError, match="precision: expected one of bf16, fp8, fp4, nvfp4"):
        models.checkpoint(published, "fp6")


# -- the bytes of stored weights


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
        result = models.stored(llama, dtype)
        assert result.weight_dtype == dtype
        stay = 2 * (tables + norms)
        assert result.weight_bytes == pytest.approx(stay + matrices * bits / 8, abs=1)
        assert result.bytes_per_token() == llama.bytes_per_token()
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
