"""Models and programs for tests of devices that should agree byte for byte."""

from dataclasses import replace
from functools import partial

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.devices.base import Access, Area, CopyJob, Device, Direction
from hicache.memory.layouts import Bytes
from hicache.models import ModelDescription
from tests.tiny import pages, tiny, tiny_latents

LAYERS = 4
THREE = 3
DEVICE_PAGES = {"full": 9}
HOST_PAGES = {"full": 14}
D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE


def grouped(head_elements: int = 6) -> ModelDescription:
    """Two KV heads of as many elements of two bytes."""
    return tiny(LAYERS, head_elements)


def latent() -> ModelDescription:
    """One latent row of 18 bytes."""
    return tiny_latents(LAYERS, 7, 2, 2, 2)


def program(device: Device, seed: int) -> list[tuple[int, ...]]:
    """Random copies, writes, scribbles and looks, each on one of three streams, which waits for the
    one before it; returns what the looks saw."""
    draw = np.random.default_rng(seed)
    streams = [device.stream(name) for name in ("all", "write", "load")]
    stream = streams[0]
    seen: dict[int, tuple[int, ...]] = {}

    def looked(number: int, arrays: tuple[Bytes, ...]) -> None:
        seen[number] = tuple(hash(block.tobytes()) for block in arrays)

    for number in range(14):
        device_event, stream = device.record(stream), streams[int(draw.integers(0, 3))]
        device.wait(stream, device_event)
        look = partial(looked, number)
        first = int(draw.integers(0, LAYERS + 1))
        layers = (first, int(draw.integers(first, LAYERS + 1)))
        count = int(draw.integers(0, 6))
        here = draw.permutation(DEVICE_PAGES["full"])[:count].astype(np.int64)
        there = draw.permutation(HOST_PAGES["full"])[:count].astype(np.int64)
        seeds = draw.integers(0, 1 << 63, count).astype(np.uint64) * np.uint64(2)
        step = int(draw.integers(0, 6))
        if step == 0:
            device.access(stream, Access("full", here, "w", layers, "test"))
        elif step == 1:
            device.copy(stream, CopyJob(D2H, "full", here, there, layers, "test"))
        elif step == 2:
            device.copy(stream, CopyJob(H2D, "full", there, here, layers, "test"))
        elif step == 3:
            tier = Tier.HOST if count % 2 else Tier.DEVICE
            device.write_pattern(
                stream, Area(tier, "full", there if count % 2 else here, layers), seeds
            )
        elif step == 4:
            device.read(stream, Area(Tier.HOST, "full", there, layers), look)
        else:
            device.read(stream, Area(Tier.DEVICE, "full", here, layers), look)
    device.wait(streams[0], device.record(stream))
    for tier, sizes in ((Tier.HOST, HOST_PAGES), (Tier.DEVICE, DEVICE_PAGES)):
        every = Area(tier, "full", np.arange(sizes["full"]), (0, LAYERS))
        device.read(streams[0], every, partial(looked, 100 + tier))
    device.synchronize(device.record(streams[0]))  # type: ignore[attr-defined]
    for other in streams[1:]:
        device.synchronize(device.record(other))  # type: ignore[attr-defined]
    return [seen[number] for number in sorted(seen)]


def digests(device: Device) -> list[bytes]:
    """Of every page on both tiers."""
    return [
        device.digest(tier, "full", page)
        for tier, sizes in ((Tier.DEVICE, DEVICE_PAGES), (Tier.HOST, HOST_PAGES))
        for page in range(sizes["full"])
    ]


def page_size(model: ModelDescription) -> int:
    """A small one that the model's compression ratios divide."""
    for size in (2, 128):
        try:
            for component in model.components:
                model.bytes_per_page(component, size)
        except CallerError:
            continue
        return size
    raise AssertionError(f"no page size for {model.name}")


def shallow(model: ModelDescription) -> ModelDescription:
    """Few layers and short rows of every pool; the rest is as it is."""
    pools = tuple(
        replace(pool, layers=pool.layers[:3], head_elements=min(pool.head_elements, 128))
        for pool in model.pools
    )
    return replace(
        model, layers=max(max(pool.layers, default=0) for pool in pools) + 1, pools=pools
    )


def tour(device: Device, components: tuple[str, ...], layers: int) -> list[bytes]:
    """Pages of every pool written, backed up and half loaded elsewhere; the digests of all.

    The device has THREE pages of each component on both tiers.
    """
    stream = device.stream("tour")
    for component in components:
        device.access(stream, Access(component, pages(0, 1), "w", (0, layers), "test"))
        device.copy(stream, CopyJob(D2H, component, pages(0, 1), pages(2, 0), (0, layers), "test"))
        device.copy(
            stream, CopyJob(H2D, component, pages(0, 2), pages(2, 0), (0, layers // 2), "test")
        )
    device.synchronize(device.record(stream))  # type: ignore[attr-defined]
    return [
        device.digest(tier, component, page)
        for component in components
        for tier in (Tier.DEVICE, Tier.HOST)
        for page in range(THREE)
    ]
