"""What vLLM's groups of KV cache are to the core: components, pages, and blocks of a page.

A group is a set of layers with one block table. Groups of one kind are one component. A page is as
many tokens as a block of every group fits into (the least common multiple), and consists of one or
more blocks of each group, its slots. Reads vLLM's `KVCacheConfig` by attributes and imports nothing
of vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm
from typing import Any, NamedTuple

from hicache.core.components import settings_for
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.plugins import Shape

FULL, WINDOW, STATE = "full", "swa", "mamba"
# By vLLM's name of a class (vllm/v1/kv_cache_interface.py), or of one that it derives from.
_KINDS = {
    "FullAttentionSpec": FULL,
    "MLAAttentionSpec": FULL,
    "SlidingWindowSpec": WINDOW,
    "MambaSpec": STATE,
}
_SPARE_PAGES = 8  # prompts of full length whose pages may be on their way at a time


class Group(NamedTuple):
    """number: its place in vLLM's configuration. block: tokens. parts: blocks of a page; of a
    state, which stands at the end of a page, one."""

    number: int
    component: str
    block: int
    parts: int
    layers: tuple[str, ...]
    block_bytes: int

    def slot(self, at: int) -> str:
        """The name of the page's block number `at`."""
        return f"{self.component}.{self.number}.{at}"

    def blocks_of(self, page: int, page_tokens: int) -> range:
        """Which of a request's blocks make up its page with this number, counted from 0."""
        last = (page + 1) * page_tokens // self.block
        return range(last - self.parts, last)


class Groups(NamedTuple):
    """page: tokens of a page. window: tokens before a boundary that a request reads of a sliding
    window; 0 without one. drafts: whether a draft model reads what stands behind a page (EAGLE), so
    that the last page of a hit is computed again. shared: components whose bytes are the same on
    all ranks."""

    page: int
    window: int
    groups: tuple[Group, ...]
    shared: frozenset[str]
    drafts: bool

    @property
    def components(self) -> tuple[str, ...]:
        """In the order of the core's configuration."""
        known = {group.component for group in self.groups}
        return tuple(text for text in (FULL, WINDOW, STATE) if text in known)

    @property
    def positional(self) -> tuple[str, ...]:
        """The components that have a page for each place of a prompt, in the same order."""
        return tuple(component for component in self.components if component != STATE)

    @property
    def page_bytes(self) -> dict[str, int]:
        """Bytes of a page by component, on one rank."""
        sizes = dict.fromkeys(self.components, 0)
        for group in self.groups:
            sizes[group.component] += group.parts * group.block_bytes
        return sizes

    def of(self, component: str) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.component == component)

    def reads(self, group: Group, at: int, end: int) -> bool:
        """Whether a request that goes on after `end` tokens reads the group's block number `at`. Of
        the first page of a window that may be a part of the blocks alone."""
        return group.component != WINDOW or (at + 1) * group.block > end - self.window

    def host_pages(self, host_bytes: int) -> dict[str, int]:
        """Pages for so many bytes, as many of each component. Raises CallerError if there is no
        room for one."""
        each = sum(self.page_bytes.values())
        if host_bytes < each:
            raise CallerError(
                f"host: expected room for a page of {self.page} tokens on each rank, {each:,} "
                f"bytes, found {host_bytes:,}; enlarge it"
            )
        return dict.fromkeys(self.components, host_bytes // each)

    def config(self, host_pages: Mapping[str, int], longest: int, storage: bool) -> Config:
        """The core's settings. longest: tokens of the longest request. Device pages are numbers
        without memory: those of the pages whose copies are under way."""
        names = self.components
        pages = _SPARE_PAGES * (-(-longest // self.page) + 4)
        return Config(
            page_size=self.page,
            device_pages=(pages,) * len(names),
            host_pages=tuple(host_pages[name] for name in names),
            components=names,
            settings=settings_for(names, Shape(window_tokens=self.window)),
            storage=storage,
        )


def groups_of(config: Any, speculative: Any = None) -> Groups:
    """The groups of vLLM's `KVCacheConfig`. speculative: its `SpeculativeConfig`; of most draft
    models no group says that it is one. Raises CallerError for what cannot be carried."""
    groups: list[Group] = []
    windows: set[int] = set()
    alike: dict[str, bool] = {}
    for number, group in enumerate(config.kv_cache_groups):
        specs = _specs(group)
        kind, *others = {_kind(spec) for spec in specs}
        if others:
            raise CallerError(f"kv_cache_groups: expected one kind in group {number}, found more")
        if kind == WINDOW:
            windows |= {max(1, spec.sliding_window - 1) for spec in specs}
        latent = all(type(spec).__name__.startswith("MLA") for spec in specs)
        alike[kind] = alike.get(kind, True) and latent
        block, size = group.kv_cache_spec.block_size, sum(spec.page_size_bytes for spec in specs)
        groups.append(Group(number, kind, block, 1, tuple(group.layer_names), size))
    if FULL not in alike:
        raise CallerError(
            "kv_cache_groups: expected a group of full attention, found none; leave the connector "
            "out for this model"
        )
    if len(windows) > 1:
        raise CallerError(f"sliding_window: expected one length, found {sorted(windows)}")
    page = lcm(*(group.block for group in groups))
    drafts = any(getattr(group, "is_eagle_group", False) for group in config.kv_cache_groups)
    return Groups(
        page,
        max(windows, default=0),
        tuple(
            group if group.component == STATE else group._replace(parts=page // group.block)
            for group in groups
        ),
        frozenset(kind for kind, same in alike.items() if same),
        drafts or bool(speculative and speculative.use_eagle_block_drop()),
    )


def _specs(group: Any) -> Sequence[Any]:
    """The specification of each of a group's layers."""
    spec = group.kv_cache_spec
    inner = getattr(spec, "kv_cache_specs", None)
    return [spec if inner is None else inner[name] for name in group.layer_names]


def _kind(spec: Any) -> str:
    kind, chunk = _KINDS.get(type(spec).__name__), getattr(spec, "attention_chunk_size", None)
    if kind is None or chunk:
        raise CallerError(
            f"kv_cache_groups: expected {', '.join(_KINDS)} without chunks, found "
            f"{type(spec).__name__}; leave the connector out for this model"
        )
    return kind
