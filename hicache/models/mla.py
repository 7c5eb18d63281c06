"""Multi-head latent attention: one compressed row per layer, the same on every rank."""

from __future__ import annotations

from typing import Unpack

from ._family import Elements, Figures, model
from .base import ModelDescription, PoolDescription


def describe(
    name: str,
    source: str,
    *,
    layers: int,
    latent_elements: int,
    rope_elements: int,
    nope_elements: int,
    value_elements: int,
    dtype: str = "bf16",
    **figures: Unpack[Figures],
) -> ModelDescription:
    """A model whose only pool is `kv`: the latent and the rotary key of each layer, in one row.

    Prefill expands the latent to heads with nope + rope elements for scores and value elements for
    values. Decode absorbs this expansion into the query and attends to the latent itself
    (DeepSeek-V2, arXiv 2405.04434, section 2.1.2), so each head multiplies latent + rope elements
    and sums latent elements.
    """
    kv = PoolDescription(
        name="kv",
        component="full",
        kind="latent",
        layers=tuple(range(layers)),
        parts=("latent",),
        heads=1,
        head_elements=latent_elements + rope_elements,
        dtype=dtype,
    )
    return model(
        name,
        "mla",
        source,
        layers,
        Elements(
            nope_elements + rope_elements,
            value_elements,
            latent_elements + rope_elements,
            latent_elements,
        ),
        (kv,),
        **figures,
    )


DEEPSEEK_V3 = describe(
    "deepseek-v3",
    "huggingface.co/deepseek-ai/DeepSeek-V3 config.json; parameters: every matrix, norm and gate "
    "bias that it implies but the draft module's, published as 671 G and 37 G (arXiv 2412.19437)",
    layers=61,
    hidden_size=7168,
    vocabulary=129_280,
    attention_heads=128,
    latent_elements=512,
    rope_elements=64,
    nope_elements=128,
    value_elements=128,
    parameters=671_026_419_200,
    active_parameters=37_552_297_472,
    experts=256,
    experts_per_token=8,
    weight_dtype="fp8",  # quantization_config: fp8, blocks of 128 x 128
)

MODELS = (DEEPSEEK_V3,)
