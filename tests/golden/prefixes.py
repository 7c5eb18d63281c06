"""Small models with random weights behind a `PrefixCache`: full attention, a sliding window, and
states of a recurrence.

    python -m tests.golden.prefixes FOLDER

serves each once from the stores of this folder, and prints hits and tokens.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import transformers

from hicache.transformers import PrefixCache
from tests.patience import PATIENCE_S

_LAYERS: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "initializer_range": 0.1, "num_hidden_layers": 3,
    "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
_WINDOWS = {
    "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 12,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
_STATES = {
    "mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1,
    "mamba_d_state": 8, "mamba_chunk_size": 16,
}  # fmt: skip
FAMILIES = {
    "full": ("LlamaConfig", _LAYERS),
    "window": ("Gemma3TextConfig", _LAYERS | _WINDOWS),
    "state": ("FalconH1Config", _LAYERS | _STATES),
}
SIZES = {"device_tokens": 192, "host_tokens": 1024, "page_size": 8, "interval_tokens": 16}


def model(family: str, seed: int = 1) -> Any:
    kind, settings = FAMILIES[family]
    transformers.logging.set_verbosity_error()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = transformers.AutoModelForCausalLM.from_config(
            getattr(transformers, kind)(**settings),
            dtype=torch.float32,
            attn_implementation="eager",
        )
    return made.eval()


def prompt(seed: int = 3, tokens: int = 60) -> torch.Tensor:
    return torch.randint(5, 97, (1, tokens), generator=torch.manual_seed(seed))


def opened(family: str, folder: str, seed: int = 1) -> PrefixCache:
    store = f"file:{folder}/{family}"
    return PrefixCache(model(family, seed), storage=store, wait_s=PATIENCE_S, **SIZES)


def served(cache: PrefixCache, ids: torch.Tensor) -> tuple[dict[str, int], list[int]]:
    """Tokens that hit on each tier, and those that came out: the model's own, with its logits."""
    before = dict(cache.stats.hits)
    asked = {"max_new_tokens": 9, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    asked |= {"return_dict_in_generate": True, "output_logits": True}
    wanted, found = cache.model.generate(ids, **asked), cache.generate(ids, **asked)
    assert torch.equal(found.sequences, wanted.sequences)
    for one, other in zip(found.logits, wanted.logits, strict=True):
        assert torch.allclose(one, other, atol=1e-3)
    hits = {tier: count - before[tier] for tier, count in cache.stats.hits.items()}
    return hits, found.sequences[0].tolist()


if __name__ == "__main__":
    torch.set_num_threads(1)
    said = {}
    for name in FAMILIES:
        with opened(name, sys.argv[1]) as one:
            said[name] = served(one, prompt())
    print(json.dumps(said))
