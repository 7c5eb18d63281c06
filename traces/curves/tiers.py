"""Hits of two tiers, from the curve of one: a device of fixed size and a host of many sizes.

    inclusive    every page is written to the host at once, and a use touches it on both tiers
                 device + host hit what LRU hits with the larger of both
    exclusive    a page is on one tier, and leaves the device for the host
                 device + host hit what LRU hits with both together

The device hits what LRU hits with the device alone, either way (LRU includes all smaller LRUs).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .distances import Curve
from .runs import Column


@dataclass(frozen=True, slots=True)
class Tiers:
    """One element for each host size."""

    device_tokens: Column
    host_tokens: Column

    def document(self, host_pages: Column) -> dict[str, object]:
        return {
            "host_pages": host_pages.tolist(),
            "device_hit_tokens": self.device_tokens.tolist(),
            "host_hit_tokens": self.host_tokens.tolist(),
        }


def inclusive(curve: Curve, device_pages: int, host_pages: Column) -> Tiers:
    return _tiers(curve, device_pages, np.maximum(host_pages, device_pages))


def exclusive(curve: Curve, device_pages: int, host_pages: Column) -> Tiers:
    return _tiers(curve, device_pages, host_pages + device_pages)


def _tiers(curve: Curve, device_pages: int, together: Column) -> Tiers:
    device = np.full(len(together), curve.hit_tokens(device_pages), dtype=np.int64)
    return Tiers(device, curve.tokens_at(together) - device)
