"""How long a prompt may be if its rows are to be those of every longer prompt that begins alike.

Some rotary embeddings turn a token by other angles once a text is longer than those that the model
was trained on. Then the rows of its first tokens are others, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch


def longest_prompt(models: Sequence[Any]) -> int:
    """Tokens up to which a row depends on the tokens before it alone."""
    return min(_longest(model.config.get_text_config(decoder=True)) for model in models)


def passing_of(module: Any) -> dict[str, torch.Tensor | None]:
    """What a pass of a rotary embedding changes itself: by name, what it will compute a prompt of
    at most `longest_prompt` tokens with, or None if that follows from the rest."""
    kinds = vars(module).get("rope_type")
    if not isinstance(kinds, str | Mapping) or not hasattr(module, "original_max_seq_len"):
        return {}
    found: dict[str, torch.Tensor | None] = {}
    for layers, kind in {"": kinds}.items() if isinstance(kinds, str) else kinds.items():
        prefix = f"{layers}_" if layers else ""
        own = getattr(module, f"{prefix}inv_freq", None)
        original = getattr(module, f"{prefix}original_inv_freq", None)
        if kind == "longrope":
            found |= {f"{prefix}inv_freq": original, f"{prefix}long_inv_freq": None}
        elif "dynamic" in str(kind):
            longest = f"{prefix}max_seq_len_cached"
            known = getattr(module, longest, module.max_seq_len_cached)
            scaled = bool(known > module.original_max_seq_len)  # until the next shorter prompt
            found |= {f"{prefix}inv_freq": original if scaled else own, longest: None}
            found |= {"max_seq_len_cached": None}
    return found


def _longest(config: Any) -> int:
    known = getattr(config, "rope_parameters", None) or {}
    kinds = [one for one in (known, *known.values()) if isinstance(one, Mapping)]
    found = [sys.maxsize]
    for one in kinds:
        kind = str(one.get("rope_type", ""))
        if kind == "longrope":
            found.append(one["original_max_position_embeddings"] - 1)
        elif "dynamic" in kind:
            found.append(config.max_position_embeddings - 1)
    return min(found)
