"""How long a prompt may be if its rows are to be those of every longer prompt that begins alike.

Some rotary embeddings turn a token by other angles once a text is longer than those that the model
was trained on. Then the rows of its first tokens are others, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any


def longest_prompt(models: Sequence[Any]) -> int:
    """Tokens up to which a row depends on the tokens before it alone."""
    return min(_longest(model.config.get_text_config(decoder=True)) for model in models)


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
