"""Matching: find the nodes of a key in the tree, and the boundaries on their path.

    device anchor   the deepest node where every component is valid on device
    best anchor     the deepest node where every component is valid, each on device or host
    depth           the deepest node where one component alone is valid on any tier

All three are positions on one path of whole nodes. A request that loads nothing may use exactly the
pages that the device anchor requires.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import CoreBug
from ..state import State
from ..types import Key, Rows
from .node import Node
from .tree import label_of, path_to, split, start_of

_WORDS = 1 << 12  # compared at once


class Anchors(NamedTuple):
    """How many leading nodes of a path belong to each match; `depths` is by component."""

    device: int
    best: int
    depths: tuple[int, ...]


def walk(
    state: State, key: Key, limit: int, known: Node | None = None
) -> tuple[list[Node], Node | None, int]:
    """Follow the first `limit` pages of the key down the tree.

    Returns the nodes that match as a whole, then a node that matches in part (or None) and how many
    of its pages match. known: a node that is known to match with its whole path, at most `limit`
    pages deep; it is of no use once it has left the tree. Changes nothing.
    """
    raw, stride = key.raw, key.stride
    stop = min(len(raw), limit * stride)
    if known is not None and known.end_page > limit:
        raise CoreBug(f"{known} goes beyond the {limit} pages that are looked for")
    if known is None or known.parent is None:
        path: list[Node] = []
        node, position = state.root, 0
        label = label_of(key.namespace, raw[:stride])
    else:
        path = path_to(known)
        node, position = known, known.end_page * stride
        label = raw[position : position + stride]
    while position < stop:
        child = node.children.get(label)
        if child is None:
            break
        after = position + len(child.key)
        if after > stop or not raw.startswith(child.key, position):
            return path, child, _shared_pages(raw, position, stop, child.key, stride)
        path.append(child)
        node, position = child, after
        label = raw[after : after + stride]
    return path, None, 0


def _shared_pages(raw: bytes, start: int, stop: int, other: Rows, stride: int) -> int:
    """How many leading rows of `raw`, from byte `start` to `stop`, and of another run are equal."""
    words = min(stop - start, len(other)) // 8
    ours = np.frombuffer(raw, dtype="<i8", count=words, offset=start)
    theirs = np.frombuffer(other, dtype="<i8", count=words)
    for first in range(0, words, _WORDS):
        differs = ours[first : first + _WORDS] != theirs[first : first + _WORDS]
        at = int(differs.argmax())
        if differs[at]:
            return (first + at) * 8 // stride
    return words * 8 // stride


def match(state: State, key: Key, limit: int, known: Node | None = None) -> list[Node]:
    """The path of nodes for the longest known prefix of at most `limit` pages. Splits the last node
    if only a part of it matches."""
    path, partial, pages = walk(state, key, limit, known)
    if partial is not None:
        path.append(split(state, partial, pages))
    return path


def cut(state: State, path: list[Node], at: int) -> None:
    """Split a node of the path so that one ends at page `at`, if the path goes that far."""
    for index in range(len(path) - 1, -1, -1):
        node = path[index]
        if at >= node.end_page:
            return
        start = start_of(node, state.stride)
        if start < at:
            path.insert(index, split(state, node, at - start))
            return


def cut_windows(state: State, path: list[Node]) -> None:
    """Split nodes so that the window of each bounded component before the path's end begins at the
    start of a node. Then a lock covers no more than the window."""
    for index in state.bounded:
        if path:
            cut(state, path, path[-1].end_page - state.components[index].window_pages)


def anchors(state: State, path: list[Node], part: int = 0) -> Anchors:
    """The anchors of a path. With `part`, the match ends inside the last node, and only the first
    `part` pages of that node count."""
    ends = _ends(path, part)
    depths = []
    for index, component in enumerate(state.components):
        # a state is at its node's end, which a match that ends inside it does not reach
        upto = len(path) - (bool(part) and not component.positional)
        depths.append(_deepest(path, ends, upto, index, component.window_pages, False))
    best = least = min(depths)
    if least < max(depths):
        best = _common(state, path, ends, least, False)
    device = _common(state, path, ends, best, True)
    if not 0 <= device <= best <= least:
        raise CoreBug(f"anchors {device} on device and {best} anywhere, with depths {depths}")
    return Anchors(device, best, tuple(depths))


def deepest_on(state: State, path: list[Node], tier: int, part: int = 0) -> int:
    """How many leading nodes of a path lead to the deepest one at which every component is valid on
    the tier alone. part: see `anchors`."""
    ends = _ends(path, part)
    upto, before = len(path), -1
    if part and not all(component.positional for component in state.components):
        upto -= 1  # a state is at its node's end
    while upto != before:
        before = upto
        for index, component in enumerate(state.components):
            for depth in range(upto, 0, -1):
                if ends[upto] - ends[depth] >= component.window_pages:
                    break
                if path[depth - 1].pages[tier][index] is None:
                    upto = depth - 1
    return upto


def _common(state: State, path: list[Node], ends: list[int], upto: int, on_device: bool) -> int:
    """The deepest of the first `upto` nodes at which every component is valid."""
    before = -1
    while upto != before:
        before = upto
        for index, component in enumerate(state.components):
            upto = _deepest(path, ends, upto, index, component.window_pages, on_device)
        if len(state.components) == 1:
            break
    return upto


def _deepest(
    path: list[Node], ends: list[int], upto: int, index: int, window: int, on_device: bool
) -> int:
    """The deepest of the first `upto` nodes at which one component is valid, on device or anywhere.
    Goes from the deepest node up, so it need not read the nodes above the window."""
    for depth in range(upto, 0, -1):
        node = path[depth - 1]
        if ends[upto] - ends[depth] >= window:
            break
        if node.pages[0][index] is None and (on_device or node.pages[1][index] is None):
            upto = depth - 1
    return upto


def _ends(path: list[Node], part: int) -> list[int]:
    """Page depths: 0 for the empty path, then the end of each node. With `part`, the last depth is
    that of the match inside the last node."""
    ends = [0, *[node.end_page for node in path]]
    if part:
        ends[-1] = ends[-2] + part
    return ends


def probe(
    state: State, key: Key, limit: int, known: Node | None = None
) -> tuple[int, int, tuple[int, ...], Node | None]:
    """What a match of the first `limit` pages would find: pages on device, pages after those on
    host, by component the depth in pages up to which it is valid, and the deepest node that matches
    as a whole. known: see `walk`. Changes nothing."""
    path, partial, part = walk(state, key, limit, known)
    deepest = path[-1] if path else None
    if partial is not None:
        path.append(partial)
    ends = _ends(path, part)
    found = anchors(state, path, part)
    on_device, on_any = ends[found.device], ends[found.best]
    return on_device, on_any - on_device, tuple([ends[depth] for depth in found.depths]), deepest
