"""The model and the engine that are served, as the simulator has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from hicache.models.mha import describe
from sim.engine_profiles.base import EngineProfile

from .fitting import Host

_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_FULL = "FullAttentionSpec"


def model_of(facts: dict[str, Any], folder: Path, name: str) -> ModelDescription:
    """Raises CallerError for a model whose layers are not all of full attention."""
    groups, shape = facts["groups"], facts["model"]
    if [one["kind"] for one in groups] != [_FULL]:
        kinds = ", ".join(one["kind"] for one in groups) or "none"
        raise CallerError(
            f"model: expected full attention in every layer, found {kinds}; its passes are not "
            "measured yet, take another model"
        )
    if shape["dtype"] not in _TYPES:
        raise CallerError(
            f"model: expected rows of {', '.join(_TYPES)}, found {shape['dtype']}; take another"
        )
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    each = 4 if shape["dtype"] == "float32" else 2
    embeddings = 2 * shape["vocabulary"] * shape["hidden"]
    return describe(
        name,
        "an engine that served it",
        layers=shape["layers"],
        kv_heads=shape["kv_heads"],
        head_elements=shape["head_elements"],
        dtype=_TYPES[shape["dtype"]],
        hidden_size=shape["hidden"],
        vocabulary=shape["vocabulary"],
        attention_heads=shape["heads"],
        parameters=max(size // each, embeddings + shape["layers"]),
        page_size=facts["page"],
    )


def engine_of(facts: dict[str, Any], host: Host, request_ns: int, source: str) -> EngineProfile:
    """vLLM as it was opened: its limits, and the time of its host."""
    ahead = facts["async_scheduling"]
    return EngineProfile(
        name="vllm",
        version=facts["release"],
        token_budget=facts["max_num_batched_tokens"],
        max_running=facts["max_num_seqs"],
        lookahead=ahead,
        overlap=ahead,
        step_host_ns=host.step_ns,
        per_sequence_host_ns=host.sequence_ns,
        prefill_host_ns=host.chunk_ns,
        request_host_ns=request_ns,
        sources=source,
    )
