"""Walking a key down the tree, and the two boundaries a match has.

    device anchor   the deepest node where every component is valid on device
    best anchor     the deepest node where every component is valid on device or host

Both are positions on one path of whole nodes; the slots a request may use are exactly the path to
the device anchor.
"""

from __future__ import annotations

import numpy as np

from .node import Node
from .state import State
from .tree import label_of, split
from .types import Key


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


def anchors(state: State, path: list[Node], part: int = 0) -> tuple[int, int]:
    """How many leading nodes of the path make up the device match, and the best match.

    With `part`, only the first `part` pages of the last node count (a match that ends inside it).
    """
    components = state.components
    on_device = [component.start for component in components]
    on_any = on_device.copy()
    device = best = 0
    for depth, node in enumerate(path, 1):
        length = len(node.key) // state.stride
        if part and depth == len(path):
            length = part
        all_device = all_any = True
        for index, component in enumerate(components):
            there, backed = node.pages[0][index], node.pages[1][index]
            if length == part and depth == len(path):
                there = None if there is None else component.split(there, part)[0]
                backed = None if backed is None else component.split(backed, part)[0]
            held = there is not None
            on_device[index] = component.advance(on_device[index], length, held)
            held = held or backed is not None
            on_any[index] = component.advance(on_any[index], length, held)
            all_device = all_device and component.valid(on_device[index])
            all_any = all_any and component.valid(on_any[index])
        if all_device:
            device = depth
        if all_any:
            best = depth
    return device, best


def probe(state: State, key: Key, limit: int) -> tuple[int, int]:
    """Pages that would be found on device, and after them on host. No side effect."""
    path, partial, part = walk(state, key, limit)
    ends = [0, *(node.end for node in path)]
    if partial is not None:
        path.append(partial)
        ends.append(ends[-1] + part)
    device, best = anchors(state, path, part)
    return ends[device], ends[best] - ends[device]
