"""The models that are judged, built once in a process, and what is known of them.

Does not define families, see `families`, or judge logits, see `oracle`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from hicache.core.components import swa
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.transformers.describing import DTYPES, Described, describe
from invariants.fuzz.executors import ModelSettings

from . import building
from .oracle import Oracle

PAGE_SIZES = (1, 2, 3, 4, 5, 8, 16)
PROMPTS = 4  # drawn to measure a bound
REMEMBERED = 20_000  # positions of cold runs


@dataclass(frozen=True)
class Subject:
    """The models of a family, the target first."""

    settings: ModelSettings
    models: tuple[Any, ...]
    oracle: Oracle
    page_sizes: tuple[int, ...]  # those of `PAGE_SIZES` that every pool can have

    @property
    def draft(self) -> Any:
        return self.models[1] if len(self.models) > 1 else None

    @property
    def vocabulary(self) -> int:
        return building.VOCABULARY

    def described(self, page_size: int) -> Described:
        """The pools with pages of this size. Raises CallerError if a pool cannot have them."""
        return describe(self.models[0], page_size, self.draft)

    def check(self, config: Config) -> None:
        """Raises CallerError for a configuration that is none of this model."""
        described = self.described(config.page_size)
        if config.components != described.components:
            raise CallerError(
                f"executor {self.settings.executor}: expected the components "
                f"{', '.join(described.components)}, found {', '.join(config.components)}"
            )
        pages = dict.fromkeys(described.components, config.device_pages[0])
        wanted, found = (
            [one.window_tokens for one in settings if isinstance(one, swa.Settings)]
            for settings in (described.config(pages, pages).settings, config.settings)
        )
        if found < wanted:
            raise CallerError(
                f"executor {self.settings.executor}: expected a window of {wanted[0]} tokens, "
                f"found {found[0]}"
            )


def subject(settings: ModelSettings) -> Subject:
    """The models of a tape. The process computes with one thread from here on, which is fastest
    for models of this size. In a process that was forked from one with more threads, a pass would
    never end.

    Raises CallerError for an unknown family, type of elements or attention."""
    check(settings)
    torch.set_num_threads(1)
    return _made(settings)


@cache
def _made(settings: ModelSettings) -> Subject:
    models = building.build_all(
        settings.family, dtype=DTYPES[settings.dtype], attention=settings.attention
    )
    draft = models[1] if len(models) > 1 else None
    sizes = tuple(size for size in PAGE_SIZES if _can_have(size, models[0], draft))
    return Subject(settings, models, Oracle(models, PROMPTS, REMEMBERED), sizes)


def check(settings: ModelSettings) -> None:
    """Raises CallerError for an unknown family, type of elements or attention."""
    known = building.names()
    if settings.family not in known:
        raise CallerError(
            f"family: expected one of {', '.join(known)}, found {settings.family[:40]!a}"
        )
    for name, value, legal in (
        ("dtype", settings.dtype, tuple(DTYPES)),
        ("attention", settings.attention, building.attentions(settings.family)),
    ):
        if value not in legal:
            raise CallerError(
                f"{name} of {settings.family}: expected one of {', '.join(legal)}, "
                f"found {value[:40]!a}"
            )


def _can_have(page_size: int, model: Any, draft: Any) -> bool:
    try:
        describe(model, page_size, draft)
    except CallerError:
        return False
    return True
