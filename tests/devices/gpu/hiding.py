"""The share of a load's time that a forward pass of the same length hides, layer by layer.

The pass consists of the matrix products of Llama-3.1-8B's layers (projections and feed-forward,
without attention) over 16,384 tokens in bf16. Before each layer it waits for that layer of the load
and reads its pages.

It is measured twice. On an idle device, the pass also waits until the first layer of the load is
issued. On a busy one, as under load, a pass before it keeps the device busy meanwhile. How long the
caller's thread needs to issue the load is measured alone.
"""

from functools import partial

import numpy as np
import torch

from hicache.devices.base import Access, DeviceEvent, Direction
from hicache.devices.cuda import CudaDevice

from . import _bench
from ._bench import REPEATS, Figure, Outcome

_LEAST = 0.90
_MOST_MS = 2.0  # of the caller's thread
_BUSY_NS = 100_000_000  # longer than load and pass take to issue
_TOKENS = _bench.MOVED_PAGES * _bench.PAGE_SIZE
_HIDDEN, _QKV, _INNER = 4096, 6144, 14336


class _Pass:
    """The forward pass. One layer's weights are used for every layer."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self.stream = device.stream("compute")
        with _bench.on(device, self.stream):
            self._states = self._random(_TOKENS, _HIDDEN)
            self._weights = [
                self._random(*shape)
                for shape in (
                    (_HIDDEN, _QKV),
                    (_HIDDEN, _HIDDEN),
                    (_HIDDEN, 2 * _INNER),
                    (_INNER, _HIDDEN),
                )
            ]

    def issue(self, pages: np.ndarray | None, device_events: list[DeviceEvent]) -> None:
        """pages: read in each layer after the layer's event; None for a pass alone."""
        device, states = self._device, self._states
        qkv, out, up, down = self._weights
        for layer in range(device.layers):
            if device_events:
                device.wait(self.stream, device_events[layer])
            if pages is not None:
                device.access(
                    self.stream, Access("full", pages, "r", (layer, layer + 1), "attention")
                )
            with _bench.on(device, self.stream):
                torch.mm(states, qkv)
                torch.mm(states, out)
                inner = torch.mm(states, up)
                torch.mm(inner[:, :_INNER], down)

    def _random(self, rows: int, columns: int) -> torch.Tensor:
        return torch.randn((rows, columns), dtype=torch.bfloat16, device="cuda") * 0.01


def run() -> Outcome:
    figures = []
    for backend in ("direct", "kernel"):
        figures += _measure(backend)
    return Outcome(figures)


def _measure(backend: str) -> list[Figure]:
    pages = _bench.scattered(np.random.default_rng(0))
    h2d = Direction.HOST_TO_DEVICE
    with _bench.make(_bench.LAYOUT, backend) as device:
        forward, load = _Pass(device), device.stream("load")

        def alone() -> int:
            return _bench.timed(
                device, load, lambda: _bench.transfer(device, load, h2d, pages, _bench.EACH_LAYER)
            )

        def run(held_ns: int, loads: bool) -> int:
            """The load starts with the pass; the time ends when both have ended."""
            device.synchronize(device.record(forward.stream))
            if held_ns:
                _bench.hold(device, forward.stream, held_ns)
            before, device_events = device.record(forward.stream), []
            if loads:
                device.wait(load, before)
                device_events = _bench.transfer(device, load, h2d, pages, _bench.EACH_LAYER)
            forward.issue(pages[0], device_events)
            after = device.record(forward.stream)
            device.synchronize(after)
            return device.reached_ns(after) - device.reached_ns(before)

        load_ns = _bench.repeated(alone, REPEATS)
        free_ms, whole_ms = _bench.issued_ms(device, load, pages, REPEATS)
        figures = [
            Figure(f"{backend}: load alone", load_ns / 1e6, "ms"),
            Figure(f"{backend}: the caller's time to issue it", free_ms, "ms"),
            Figure(f"{backend}: {_MOST_MS:g} ms over that time", _MOST_MS / free_ms, "x", 1.0),
            Figure(f"{backend}: time until all of it is issued", whole_ms, "ms"),
        ]
        for name, held_ns in (("idle", 0), ("busy", _BUSY_NS)):
            pass_ns = _bench.repeated(partial(run, held_ns, False), REPEATS)
            both_ns = _bench.repeated(partial(run, held_ns, True), REPEATS)
            hidden = 1 - (both_ns - pass_ns) / load_ns
            figures += [
                Figure(f"{backend}, {name}: pass alone", pass_ns / 1e6, "ms"),
                Figure(f"{backend}, {name}: both", both_ns / 1e6, "ms"),
                Figure(f"{backend}, {name}: hidden share of the load", hidden, "", _LEAST),
            ]
    return figures
