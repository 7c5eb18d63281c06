"""The expected match of a request, by brute force over sets of cached positions.

Lives here: the rule for a valid boundary, position by position, for all components and both tiers.
Does not use nodes, paths, or the core's components.

    boundary d is valid for a component if every position that d requires is cached
    device     the deepest boundary that is valid on device for every component
    best       the deepest boundary that is valid for every component, with each position on
               device or on host
    depths     for each component alone, the deepest boundary that is valid on device or on host
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .kinds import Kind
from .tags import leading


class Expected(NamedTuple):
    """In pages. lacking: per component, the pages of `best` that are only on host."""

    device: int
    best: int
    depths: tuple[int, ...]
    lacking: tuple[int, ...]


NOTHING = Expected(0, 0, (0,), (0,))


def find(known: Sequence[int], resident: Sequence[set[int]], kinds: Sequence[Kind]) -> Expected:
    """Computes the expected match. known: tags of the leading pages that may be reused. resident:
    tags cached in each slot.
    """
    width = len(kinds)
    device, host = resident[0], resident[width]
    on_device = leading(known, device)
    known_pages = on_device
    for tag in known[on_device:]:
        if tag not in device and tag not in host:
            break
        known_pages += 1
    if width == 1:
        return Expected(on_device, known_pages, (known_pages,), (known_pages - on_device,))
    # first for device, then for device or host; by boundary
    everywhere = [[True] * (known_pages + 1) for _ in range(2)]
    everywhere[0][on_device + 1 :] = [False] * (known_pages - on_device)
    depths = [known_pages]
    for kind in kinds[1:]:
        above, below = resident[kind.at], resident[width + kind.at]
        present = [tag in above for tag in known[:known_pages]]
        somewhere = [
            here or tag in below for here, tag in zip(present, known[:known_pages], strict=True)
        ]
        for every, there in zip(everywhere, (present, somewhere), strict=True):
            valid = _valid(there, kind.need)
            every[:] = [one and other for one, other in zip(every, valid, strict=True)]
        depths.append(_deepest(_valid(somewhere, kind.need)))
    best = _deepest(everywhere[1])
    lacking = tuple(
        sum(tag not in resident[kind.at] for tag in known[max(0, best - kind.need) : best])
        for kind in kinds
    )
    return Expected(_deepest(everywhere[0]), best, tuple(depths), lacking)


def _valid(there: Sequence[bool], need: int) -> list[bool]:
    """Returns for each boundary from 0 whether all positions that it requires are cached."""
    run, valid = need, [True]  # the empty prefix is valid
    for one in there:
        run = run + 1 if one else 0
        valid.append(run >= need)
    return valid


def _deepest(valid: Sequence[bool]) -> int:
    return max(depth for depth, one in enumerate(valid) if one)
