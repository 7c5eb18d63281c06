"""The configuration of a core: one frozen record, validated once and passed to the core.

Its spelling in files is in `hicache/runtime/config_document`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from .errors import CallerError
from .plugins import ComponentSettings

UNBOUNDED = 1 << 40

S = TypeVar("S", bound=ComponentSettings)
_LEAST_1 = ("page_size", "passes")
_SIZES = ("device_pages", "host_pages", "exchange_pages", "pin_pages", "pin_host_pages")
_COUNTS = (
    *("load_threshold_pages", "load_quota_pages", "max_backups"),
    *("prefetch_threshold_tokens", "prefetch_budget_tokens", "max_stores", "store_tries"),
    "ttl_periods",
)


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one core. Pages, not bytes: the core does not know how large a page is.

    Raises CallerError for values that are not legal.

    page_size             tokens per page, at least 1.
    device_pages          pages of the device pool, per component in the order of `components`.
    host_pages            pages of the host pool, per component; 0 means that the component is never
                          on host.
    components            names of components (core/components); the first is the backbone.
    write_policy          name of a policy (core/write_policies): when a node is backed up.
    eviction_policy       name of a policy (core/eviction_policies): which copy is
                          evicted first.
    load_threshold_pages  a host hit shorter than this many pages is recomputed, not loaded.
    load_quota_pages      a host hit longer than this is recomputed; 0 means no limit.
    max_backups           the largest number of backups in flight. A further backup waits for the
                          next insertion there, but a backup for an eviction always begins.
    exchange_pages        host pages, per component, that stay free for exchanges. A load frees the
                          host copies at its reply; until then, the pages that it evicts from
                          device may use this many host pages more. Needs a write policy that copies
                          on eviction. (): a page that is loaded keeps its host copy.
    kv_events             emit KvStored / KvRemoved for routers (costs one SHA-256 per new page).
    storage               storage is attached from the beginning. Needs host pages.
    prefetch_policy       name of a policy (core/prefetch_policies): whether an admission waits
                          for the request's prefetch.
    prefetch_threshold_tokens  a prefetch of fewer tokens is not begun, and not fetched when storage
                          has fewer. Counts whole pages: a page counts with page_size tokens.
    prefetch_budget_tokens  tokens that may be looked up and fetched at a time; 0 means as many as
                          the backbone's host pool has room for.
    max_stores            the largest number of stores in flight. Further nodes wait for a reply.
    store_tries           how often a node's pages are stored before they are given up, until the
                          node is used again.
    ttl_periods           a node that was not used for so many periods goes (`TimePassed` ends a
                          period); 0 means that nothing expires.
    pin_pages             device pages, per component, that pins may hold. (): none.
    pin_host_pages        the same of host pages.
    passes                passes of one request that may be in flight at a time, at least 1: as many
                          as the pipeline has stages.
    branch_states         whether a request also keeps a state where its prompt left what the tree
                          knew, since others are likely to branch off there.
    settings              `Settings` of components; those that equal their defaults may be left out.
    """

    page_size: int
    device_pages: tuple[int, ...]
    host_pages: tuple[int, ...] = (0,)
    components: tuple[str, ...] = ("full",)
    write_policy: str = "write_through"
    eviction_policy: str = "lru"
    load_threshold_pages: int = 1
    load_quota_pages: int = 0
    max_backups: int = 4096
    exchange_pages: tuple[int, ...] = ()
    kv_events: bool = False
    settings: tuple[ComponentSettings, ...] = ()
    storage: bool = False
    prefetch_policy: str = "wait_complete"
    prefetch_threshold_tokens: int = 0
    prefetch_budget_tokens: int = 0
    max_stores: int = 64
    store_tries: int = 3
    ttl_periods: int = 0
    pin_pages: tuple[int, ...] = ()
    pin_host_pages: tuple[int, ...] = ()
    passes: int = 1
    branch_states: bool = True

    def __post_init__(self) -> None:
        self._check_types()
        for name in _LEAST_1:
            if getattr(self, name) < 1:
                raise CallerError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if not self.components:
            raise CallerError("components: expected at least one (full), found none")
        if len(set(self.components)) < len(self.components):
            raise CallerError(f"components: expected each once, found {self.components}")
        for name, sizes, least in (
            ("device_pages", self.device_pages, 1),
            ("host_pages", self.host_pages, 0),
        ):
            if len(sizes) != len(self.components):
                raise CallerError(
                    f"{name}: expected one size for each of {', '.join(self.components)}, "
                    f"found {len(sizes)}"
                )
            if min(sizes) < least:
                raise CallerError(f"{name}: expected at least {least}, found {min(sizes)}")
        components = [setting.component for setting in self.settings]
        if len(set(components)) < len(components) or not set(components) <= set(self.components):
            raise CallerError(
                f"settings: expected those of {', '.join(self.components)}, each once, found "
                f"{', '.join(components)}"
            )
        unusual = [setting for setting in self.settings if not _is_usual(setting)]
        unusual.sort(key=lambda item: self.components.index(item.component))
        object.__setattr__(self, "settings", tuple(unusual))  # equal ones compare as equal
        if not self.host_pages[0] and any(self.host_pages):
            raise CallerError(
                f"host_pages: expected pages of {self.components[0]} too where another component "
                f"has some, found {self.host_pages}"
            )
        fewer = tuple([max(0, pages - 1) for pages in self.host_pages])
        for name, sizes, most in (
            ("exchange_pages", self.exchange_pages, fewer),
            ("pin_pages", self.pin_pages, self.device_pages),
            ("pin_host_pages", self.pin_host_pages, self.host_pages),
        ):
            if sizes and (
                len(sizes) != len(most)
                or not all(0 <= item <= size for item, size in zip(sizes, most, strict=True))
            ):
                raise CallerError(f"{name}: expected at most the pages {most}, found {sizes}")
        for name in _COUNTS:
            value = getattr(self, name)
            if value < 0:
                raise CallerError(f"{name}: expected 0 or more, found {value}")
        if self.storage and not self.has_host:
            raise CallerError(
                f"storage: expected host pages, found {self.host_pages}; storage is filled from "
                "host, so give host_pages or leave storage out"
            )

    def _check_types(self) -> None:
        """Raises CallerError for values of another type than the one declared."""
        for name in (*_LEAST_1, *_COUNTS):
            _of_type(name, getattr(self, name), int, "a whole number, an int")
        for name in ("write_policy", "eviction_policy", "prefetch_policy"):
            _of_type(name, getattr(self, name), str, "the name of a policy")
        _of_type("storage", self.storage, bool, "True or False")
        sizes = "a tuple of pages for each component, such as (1000,)"
        for name, kind, what in (
            *((name, int, sizes) for name in _SIZES),
            ("components", str, 'a tuple of names, such as ("full",)'),
            ("settings", ComponentSettings, "a tuple of Settings of components"),
        ):
            values = getattr(self, name)
            _of_type(name, values, tuple, what)
            for value in values:
                _of_type(name, value, kind, what)

    def settings_of(self, kind: type[S]) -> S | None:
        """The settings of this class, or None."""
        return next((setting for setting in self.settings if isinstance(setting, kind)), None)

    @property
    def has_host(self) -> bool:
        return self.host_pages[0] > 0


def _of_type(name: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise CallerError(f"{name}: expected {what}, found {value!r}")


def _is_usual(settings: Any) -> bool:
    """Whether every setting has its default value."""
    return all(getattr(settings, field.name) == field.default for field in fields(settings))
