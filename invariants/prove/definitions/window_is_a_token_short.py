"""Planted in `Described.config`: the window is a token shorter than what a layer keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hicache.transformers.describing import Described

from ...planted.base import Patch

# A layer keeps a token less than the window, which counts the token that attends. So the core needs
# no more than that, and it is told one less.
_LESS = 2

TITLE = "The core is told a window that misses one of the tokens that a layer keeps."
FAMILIES: tuple[str, ...] = ("gemma3", "gpt-oss")

_config = Described.config


def _short(self: Described, *args: Any, **fields: Any) -> Any:
    return _config(replace(self, window_tokens=self.window_tokens - _LESS), *args, **fields)


def plant(patch: Patch) -> None:
    patch(Described, "config", _short)
