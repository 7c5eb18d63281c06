"""Planted in `Described.config`: the window is a page shorter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hicache.transformers.describing import Described

from ...planted.base import Patch

TITLE = "The core is told a window that is a page too short."
FAMILIES: tuple[str, ...] = ("gemma3", "gpt-oss", "deepseek-v4")

_config = Described.config


def _short(self: Described, *args: Any, **fields: Any) -> Any:
    less = max(1, self.window_tokens - self.page_size)
    return _config(replace(self, window_tokens=less), *args, **fields)


def plant(patch: Patch) -> None:
    patch(Described, "config", _short)
