"""The parts of a cache for one model: pools, device, core, controller and store.

Chooses the sizes of the pools from tokens, and the device from where the model is. Does not feed
the core; see `engine`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from hicache.core import registry
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.devices.base import DeviceOptions
from hicache.memory.stored import stored_pools
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver
from hicache.runtime.storage.attachment import Attachment
from hicache.runtime.storage.executor import StorageExecutor
from hicache.runtime.storage.pages import StoredPages
from hicache.runtime.tiered import TieredExecutor
from hicache.storage.base import StorageOptions
from hicache.storage.keys import Context

from .describing import Described, describe
from .errors import UnsupportedModelError
from .identity import revision_of
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


def build(
    model: Any, draft: Any, sizes: Sizes, storage: str | None, room: int, revision: str
) -> Parts:
    """Build everything, with an attached store if an address is given. room: bytes that the store
    may use, 0 for all. Raises CallerError for a model or sizes that cannot be used."""
    _check_model(model, draft)
    _check_sizes(sizes, storage)
    described = describe(model, sizes.page_size, draft)
    config = _config(described, sizes)
    pages = [
        dict(zip(config.components, counts, strict=True))
        for counts in (config.device_pages, config.host_pages)
    ]
    device = _device(model.device, described, *pages)
    try:
        controller, executor = TransferController(device), StorageExecutor()
        driver = Driver(Core(config), TieredExecutor(controller, executor))
        models = (model,) if draft is None else (model, draft)
        context = Context(
            type(model).__name__,
            revision_of(models, revision),
            sizes.page_size,
            "tokens",
            described.model.pools,
        )
        stored = StoredPages(context, stored_pools(device.arena))
        attachment = Attachment(driver, executor, stored, time.monotonic, _log.warning)
        if storage is not None:
            attachment.attach(storage, StorageOptions(size_bytes=room))
    except BaseException:
        device.close()
        raise
    return Parts(described, device, controller, driver, attachment)


def _check_model(model: Any, draft: Any) -> None:
    for one in (model, draft):
        if one is None:
            continue
        name = type(one).__name__
        if not hasattr(one, "generate") or not hasattr(one, "config"):
            raise UnsupportedModelError(
                f"model: expected a causal language model of transformers, found {name}"
            )
        if one.config.is_encoder_decoder:
            raise UnsupportedModelError(
                f"model {name}: expected a decoder-only model, found an encoder-decoder; use "
                "model.generate for it"
            )
        places = {str(tensor.device) for tensor in one.parameters()}
        if len(places) != 1 or next(iter(places)).partition(":")[0] not in ("cpu", "cuda"):
            raise UnsupportedModelError(
                f"model {name}: expected all weights on the CPU or on one CUDA device, found "
                f"{', '.join(sorted(places))}"
            )


def _check_sizes(sizes: Sizes, storage: str | None) -> None:
    for name, value, least in (
        ("page_size", sizes.page_size, 1),
        ("device_tokens", sizes.device_tokens, 2 * sizes.page_size),
        ("host_tokens", sizes.host_tokens, 0),
        ("interval_tokens", sizes.interval_tokens, 1),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            pages = ", two pages" if name == "device_tokens" else ""
            raise CallerError(f"{name}: expected at least {least}{pages}, found {value!r}")
    if storage is not None and sizes.host_tokens < sizes.page_size:
        raise CallerError(
            f"host_tokens: expected at least {sizes.page_size}, a page, since storage is filled "
            f"from host memory, found {sizes.host_tokens}; give host_tokens or leave storage out"
        )


def _config(described: Described, sizes: Sizes) -> Config:
    """One state for each interval, and pages for each token of every other component."""
    size = sizes.page_size
    interval = -(-sizes.interval_tokens // size) * size

    def pages(tokens: int, slots: int) -> Mapping[str, int]:
        states = tokens // interval + slots
        return {name: states if name == STATE else tokens // size for name in described.components}

    device = pages(sizes.device_tokens, _SLOTS + 1)
    host = pages(sizes.host_tokens, 1 if sizes.host_tokens >= size else 0)
    return described.config(device, host, interval_tokens=interval)


def _device(
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
