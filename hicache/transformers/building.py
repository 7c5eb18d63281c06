"""The parts of a cache for one model: pools, device, core, controller and store.

Chooses the sizes of the pools from tokens, and the device from where the model is. Does not feed
the core; see `engine`.
"""

from __future__ import annotations

import logging
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

from .clock import Clock
from .describing import Described, describe
from .errors import UnsupportedModelError
from .identity import revision_of
from .layers.base import STATE
from .positions import longest_prompt
from .verifying import verify

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
    longest: int  # of a prompt whose rows depend on its tokens alone


class Store(NamedTuple):
    """address: None for no store. size_bytes: that it may use, 0 for all. revision: kept apart."""

    address: str | None
    size_bytes: int
    revision: str


def build(model: Any, draft: Any, sizes: Sizes, store: Store, clock: Clock) -> Parts:
    """Build everything, with an attached store if an address is given. Raises CallerError for a
    model or sizes that cannot be used."""
    for one in (model, draft):
        if one is not None:
            _check_model(one)
    _check_sizes(sizes, store.address)
    described = describe(model, sizes.page_size, draft)
    if draft is not None and STATE in described.components:
        raise UnsupportedModelError(
            f"draft {type(draft).__name__}: expected a model and a draft without states, which "
            "cannot take back tokens that are not accepted, found layers with states; leave the "
            "draft out"
        )
    _check_window(described.window_tokens, sizes)
    interval = -(-sizes.interval_tokens // sizes.page_size) * sizes.page_size
    config = _config(described, sizes, interval)
    pages = [
        dict(zip(config.components, counts, strict=True))
        for counts in (config.device_pages, config.host_pages)
    ]
    device = _device(model.device, described, *pages)
    try:
        controller, executor = TransferController(device), StorageExecutor()
        driver = Driver(Core(config), TieredExecutor(controller, executor))
        models = (model,) if draft is None else (model, draft)
        verify(models, described, device.arena)
        context = Context(
            type(model).__name__,
            revision_of(models, store.revision),
            sizes.page_size,
            "tokens",
            described.model.pools,
        )
        stored = StoredPages(context, stored_pools(device.arena))
        attachment = Attachment(driver, executor, stored, clock.now_s, _log.warning)
        if store.address is not None:
            attachment.attach(store.address, StorageOptions(size_bytes=store.size_bytes))
    except BaseException:
        device.close()
        raise
    kept = interval if STATE in described.components else 0
    longest = longest_prompt(models)
    return Parts(described, device, controller, driver, attachment, kept, longest)


def _check_model(model: Any) -> None:
    name = type(model).__name__
    if not hasattr(model, "generate") or not hasattr(model, "config"):
        raise UnsupportedModelError(
            f"model: expected a causal language model of transformers, found {name}"
        )
    if model.config.is_encoder_decoder:
        raise UnsupportedModelError(
            f"model {name}: expected a decoder-only model, found an encoder-decoder; use "
            "model.generate for it"
        )
    if model.training:
        raise UnsupportedModelError(
            f"model {name}: expected eval mode, found training mode; call model.eval()"
        )
    places = sorted({str(tensor.device) for tensor in model.parameters()})
    if len(places) != 1 or places[0].partition(":")[0] not in ("cpu", "cuda"):
        raise UnsupportedModelError(
            f"model {name}: expected all weights on the CPU or on one CUDA device, found "
            f"{', '.join(places)}"
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


def _check_window(window_tokens: int, sizes: Sizes) -> None:
    """Raises CallerError for a window that has no room, of which a request needs a page more."""
    least = (-(-window_tokens // sizes.page_size) + 1) * sizes.page_size
    if window_tokens and sizes.device_tokens < least:
        raise CallerError(
            f"device_tokens: expected at least {least} for a model with a window of "
            f"{window_tokens} tokens, found {sizes.device_tokens}"
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
