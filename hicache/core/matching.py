"""Walking a key down the tree, and the boundaries a match has.

    device anchor   the deepest node where every component is valid on device
    best anchor     the deepest node where every component is valid, each on device or host
    depth           the deepest node where one component alone is valid on any tier

All are positions on one path of whole nodes; the slots a request may use without a load are exactly
what the device anchor requires.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .node import Node
from .state import State
from .tree import label_of, split
from .types import Key


class Anchors(NamedTuple):
    """How many leading nodes of a path make up each match; depths by component."""

    device: int
    best: int
    depths: tuple[int, ...]


def walk(state: State, key: Key, limit: int) -> tuple[list[Node], Node | None, int]:
    """The nodes whose whole run the key shares, then a node that it shares in part, and how far.

    Looks at the first `limit` pages of the key. No side effect.
    """
    raw, stride = key.raw, key.stride
    stop = min(len(raw), limit * stride)
    path: list[Node] = []
    node, position = state.root, 0
    label = label_of(key.namespace, raw[:stride])
    while position < stop:
        child = node.children.get(label)
        if child is None:
            break
        after = position + len(child.key)
        if after > stop or not raw.startswith(child.key, position):
            return path, child, _shared_pages(raw[position:stop], child.key, stride)
        path.append(child)
        node, position = child, after
        label = raw[after : after + stride]
    return path, None, 0


def _shared_pages(one: bytes, other: bytes, stride: int) -> int:
    """How many leading rows two runs share."""
    size = min(len(one), len(other))
    differs = np.frombuffer(one, dtype="<i8", count=size // 8) != np.frombuffer(
        other, dtype="<i8", count=size // 8
    )
    first = int(differs.argmax())
    return (first * 8 if differs[first] else size) // stride


def match(state: State, key: Key, limit: int) -> list[Node]:
    """The path of nodes that make up the longest known prefix, splitting the last if need be."""
    path, partial, pages = walk(state, key, limit)
    if partial is not None:
        path.append(split(state, partial, pages))
    return path


def cut(state: State, path: list[Node], at: int) -> None:
    """Let a node of the path end at page `at`, if the path goes that far."""
    for index in range(len(path) - 1, -1, -1):
        node = path[index]
        if at >= node.end:
            return
        start = node.end - len(node.key) // state.stride
        if start < at:
            path.insert(index, split(state, node, at - start))
            return


def cut_windows(state: State, path: list[Node]) -> None:
    """Let what the path's end requires of each bounded component begin at a node's start, where the
    node across that point holds any of it: a lock covers a window and no more."""
    for index, component in enumerate(state.components):
        at = path[-1].end - component.reach - 1 if path else 0
        if at <= 0 or not component.positional:
            continue
        node = next(node for node in path if node.end > at)
        if node.pages[0][index] is not None or node.pages[1][index] is not None:
            cut(state, path, at)


def anchors(state: State, path: list[Node], part: int = 0) -> Anchors:
    """Where the path matches. With `part`, only the first `part` pages of the last node count (a
    match that ends inside it)."""
    components = state.components
    on_device = [component.start for component in components]
    on_any = on_device.copy()
    depths = [0] * len(components)
    device = best = 0
    for depth, node in enumerate(path, 1):
        length = len(node.key) // state.stride
        ends_inside = bool(part) and depth == len(path)
        if ends_inside:
            length = part
        all_device = all_any = True
        for index, component in enumerate(components):
            there, backed = node.pages[0][index], node.pages[1][index]
            if ends_inside:
                there = None if there is None else component.split(there, part)[0]
                backed = None if backed is None else component.split(backed, part)[0]
            held = there is not None
            on_device[index] = component.advance(on_device[index], length, held)
            held = held or backed is not None
            on_any[index] = component.advance(on_any[index], length, held)
            all_device = all_device and component.valid(on_device[index])
            if component.valid(on_any[index]):
                depths[index] = depth
            else:
                all_any = False
        if all_device:
            device = depth
        if all_any:
            best = depth
    return Anchors(device, best, tuple(depths))


def probe(state: State, key: Key, limit: int) -> tuple[int, int, tuple[int, ...]]:
    """Pages that would be found on device, after them on host, and up to where each component alone
    is valid. No side effect."""
    path, partial, part = walk(state, key, limit)
    ends = [0, *(node.end for node in path)]
    if partial is not None:
        path.append(partial)
        ends.append(ends[-1] + part)
    found = anchors(state, path, part)
    on_device, on_any = ends[found.device], ends[found.best]
    return on_device, on_any - on_device, tuple(ends[depth] for depth in found.depths)
