"""The one frozen configuration of a core, validated once, passed in, never looked up."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import CallerError


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one core. Pages, not bytes: the core does not know how large a page is.

    page_size             tokens per page, 1 to 512 and above.
    device_pages          pages of the device pool, per component in the order of `components`.
    host_pages            pages of the host pool, per component; 0 means that it is never on host.
    components            names of files in core/components; the first is the backbone.
    write_policy          name of a file in core/write_policies: when a node is backed up.
    eviction_policy       name of a file in core/eviction_policies: which leaf goes first.
    load_threshold_pages  a host hit shorter than this many pages is recomputed, not loaded.
    load_quota_pages      a host hit longer than this is recomputed; 0 means no limit.
    max_backups           backups in flight at once; more are put off to the node's next use (what
                          an eviction waits for is not put off).
    kv_events             emit KvStored / KvRemoved for routers (costs one SHA-256 per new page).
    swa_window            tokens that a token attends to under swa; 0 where there is no swa.
    mamba_interval        tokens between the depths at which a request leaves states; 0 is one page.
    mamba_states_per_path states kept on one path of the tree; 0 is all of them.
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
    kv_events: bool = False
    swa_window: int = 0
    mamba_interval: int = 0
    mamba_states_per_path: int = 0

    def __post_init__(self) -> None:
        if self.page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {self.page_size}")
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
        for component, name, value in (
            ("swa", "swa_window", self.swa_window),
            ("mamba", "mamba_interval", self.mamba_interval),
            ("mamba", "mamba_states_per_path", self.mamba_states_per_path),
        ):
            if value and component not in self.components:
                raise CallerError(f"{name}: expected 0 without {component}, found {value}")
        if not self.host_pages[0] and any(self.host_pages):
            raise CallerError(
                f"host_pages: expected pages of {self.components[0]} too where another component "
                f"has some, found {self.host_pages}"
            )
        for name, value in (
            ("load_threshold_pages", self.load_threshold_pages),
            ("load_quota_pages", self.load_quota_pages),
            ("max_backups", self.max_backups),
            ("swa_window", self.swa_window),
            ("mamba_interval", self.mamba_interval),
            ("mamba_states_per_path", self.mamba_states_per_path),
        ):
            if value < 0:
                raise CallerError(f"{name}: expected 0 or more, found {value}")

    @property
    def has_host(self) -> bool:
        return self.host_pages[0] > 0
