"""The parts of a cache for one model: pools, device, core, controller and store.

Chooses the sizes of the pools from tokens, and the device from where the model is. Does not feed
the core, see `engine`, or look at the model, see `identity/setups`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from hicache import registry
from hicache.clock import Clock
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.devices.base import DeviceOptions
from hicache.memory.pools import stored_pools
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver
from hicache.runtime.executors import TieredExecutor
from hicache.runtime.storage.attachment import Attachment, StorageExecutor
from hicache.runtime.storage.pages import StoredPages
from hicache.storage.base import StorageOptions
from hicache.storage.keys import Context

from .describing import Described
from .layers.base import STATE

DEVICES = "hicache.devices"
_LAYOUT = DeviceOptions(layout="page_first_direct", io_backend="direct")
_SLOTS = 3  # of a running request: its working state and two checkpoints
_log = logging.getLogger("hicache")


class Sizes(NamedTuple):
    """What the user chose. interval_tokens: between stored states."""

    device_tokens: int
    host_tokens: int
    page_size: int
    interval_tokens: int


class Parts(NamedTuple):
    described: Described
    device: Any
    controller: TransferController
    driver: Driver
    attachment: Attachment
    interval: int  # tokens between states; 0 for a model without states


class Store(NamedTuple):
    """address: None for no store. size_bytes: that it may use, 0 for all. timeout_s: without
    progress. revision: kept apart, with the weights."""

    address: str | None
    size_bytes: int
    timeout_s: float
    revision: str


def build(
    place: torch.device, described: Described, name: str, sizes: Sizes, store: Store, clock: Clock
) -> Parts:
    """Build everything, with an attached store if an address is given. name: of the model. Raises
    CallerError for sizes that cannot be used."""
    _check_window(described.window_tokens, sizes)
    interval = -(-sizes.interval_tokens // sizes.page_size) * sizes.page_size
    _check_room(described, store.size_bytes)
    config = _config(described, sizes, interval)
    pages = [
        dict(zip(config.components, counts, strict=True))
        for counts in (config.device_pages, config.host_pages)
    ]
    device = device_for(place, described, *pages)
    try:
        controller, executor = TransferController(device), StorageExecutor()
        driver = Driver(Core(config), TieredExecutor(controller, executor))
        pools = described.model.pools
        context = Context(name, store.revision, sizes.page_size, "tokens", pools)
        stored = StoredPages(context, stored_pools(device.arena))
        attachment = Attachment(driver, executor, stored, clock.now_s, _log.warning)
        if store.address is not None:
            options = StorageOptions(size_bytes=store.size_bytes, timeout_s=store.timeout_s)
            attachment.attach(store.address, options)
    except BaseException:
        device.close()
        raise
    kept = interval if STATE in described.components else 0
    return Parts(described, device, controller, driver, attachment, kept)


def _check_window(window_tokens: int, sizes: Sizes) -> None:
    """Raises CallerError for a window that has no room, of which a request needs a page more."""
    least = (-(-window_tokens // sizes.page_size) + 1) * sizes.page_size
    if window_tokens and sizes.device_tokens < least:
        raise CallerError(
            f"device_tokens: expected at least {least} for a model with a window of "
            f"{window_tokens} tokens, found {sizes.device_tokens}"
        )


def _check_room(described: Described, size_bytes: int) -> None:
    """Raises CallerError for a store that cannot hold one page, or one state, of each pool."""
    least = sum(pool.page_bytes(described.page_size) for pool in described.model.pools)
    if 0 < size_bytes < least:
        raise CallerError(
            f"storage_bytes: expected room for a page, {least:,} bytes, found {size_bytes:,}; "
            "enlarge it, or leave it out for no limit"
        )


def _config(described: Described, sizes: Sizes, interval: int) -> Config:
    """One state for each interval, and pages for each token of every other component."""
    size = sizes.page_size

    def pages(tokens: int, slots: int) -> Mapping[str, int]:
        states = tokens // interval + slots
        return {name: states if name == STATE else tokens // size for name in described.components}

    device = pages(sizes.device_tokens, _SLOTS + 1)
    host = pages(sizes.host_tokens, 1 if sizes.host_tokens >= size else 0)
    return described.config(device, host, interval_tokens=interval)


def device_for(
    place: torch.device,
    described: Described,
    device_pages: Mapping[str, int],
    host_pages: Mapping[str, int],
) -> Any:
    """The device where the model is."""
    arguments = (described.model, described.page_size, device_pages, host_pages, _LAYOUT)
    module = registry.load(DEVICES, place.type)
    if place.type == "cpu":
        return module.CpuDevice(*arguments)
    accelerator = module.Accelerator(place.index or 0)
    return module.CudaDevice(*arguments, accelerator=accelerator)
