"""Putting a request's computed pages into the tree: adopt what is missing, free duplicates.

table   |--- shared ---|--------- own ---------|
                       ^ nodes that appeared meanwhile replace own pages (duplicates are freed),
                         host-only nodes adopt them, and the rest becomes a new node
"""

from __future__ import annotations

import numpy as np

from .errors import CoreBug
from .locks import lock
from .matching import match
from .node import Node, Request
from .state import State
from .tree import BACKBONE, attach, label_of, new_child
from .types import Key, Pages, Tier


def insert(state: State, request: Request, key: Key, upto: int) -> list[Node]:
    """The first `upto` pages of the key are computed: make them nodes' and lock them.

    Returns the path that now holds them. The request's table may change; the old one is a snapshot
    that others may still hold.
    """
    path = match(state, key, upto)
    join(state, request, path)
    covered = path[-1].end if path else 0
    if covered < upto:
        path.append(_grow(state, request, path, key, covered, upto))
    state.tick += 1
    for node in path:
        node.last_use = state.tick
        node.unsaved = False
        state.touched[node.id] = node
    return path


def join(state: State, request: Request, path: list[Node]) -> None:
    """The request shares these nodes from now on, beyond those it shares already."""
    pool = state.pools[Tier.DEVICE][BACKBONE]
    duplicates: list[Pages] = []
    table = request.table
    for node in path:
        if node.end <= request.shared:
            continue
        start = request.shared
        mine = request.table[start : node.end]
        held = node.pages[Tier.DEVICE][BACKBONE]
        if held is None:
            attach(state, node, Tier.DEVICE, BACKBONE, mine)
        else:
            if table is request.table:
                table = table.copy()
            table[start : node.end] = held
            duplicates.append(mine)
        node.hits += 1
        _share(state, request, node)
    if duplicates:
        table.flags.writeable = False
        request.table = table
        pool.give_back(np.concatenate(duplicates))


def _grow(
    state: State, request: Request, path: list[Node], key: Key, covered: int, upto: int
) -> Node:
    if covered != request.shared:
        raise CoreBug(f"request {request.id} shares {request.shared} pages, its path {covered}")
    parent = path[-1] if path else state.root
    rows = key.raw[covered * key.stride : upto * key.stride]
    first = rows[: key.stride]
    label = first if path else label_of(key.namespace, first)
    node = new_child(state, parent, rows, label)
    attach(state, node, Tier.DEVICE, BACKBONE, request.table[covered:upto])
    node.hits = 1
    _share(state, request, node)
    return node


def _share(state: State, request: Request, node: Node) -> None:
    if request.receipt is None:
        raise CoreBug(f"request {request.id} has no receipt to lock {node} with")
    request.shared = node.end
    lock(state, request.receipt, (node,), Tier.DEVICE)
