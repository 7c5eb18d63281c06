"""Bugs in `matching`, `boundaries` and `components`, and in the digests of pages: how far a prefix
can be reused.
"""

from __future__ import annotations

import hashlib
from typing import Any

from hicache.core import types
from hicache.core.components import swa
from hicache.core.components.full import Full
from hicache.core.components.swa import SlidingWindow
from hicache.core.radix import boundaries, matching

from .base import Patch, bug

_changed = boundaries.changed
_deepest = matching._deepest
_anchors = matching.anchors
_probe = matching.probe
_walk = matching.walk
_component = swa.component
_root_digest = types.root_digest


@bug(matching, "walk", rows=("E3",), kills="spec")
def host_only_node_is_not_split(state: Any, key: Any, limit: int, known: Any = None) -> Any:
    """A match that ends inside a node on host only stops before that node."""
    path, partial, pages = _walk(state, key, limit, known)
    if partial is not None and partial.pages[0][0] is None:
        return path, None, 0
    return path, partial, pages


@bug(matching, "anchors", rows=("E1",))
def device_match_checks_backbone_only(state: Any, path: Any, part: int = 0) -> Any:
    """A device match is accepted where the window or the state is missing on device."""
    found = _anchors(state, path, part)
    ends = matching._ends(path, part)
    unbounded = state.components[0].window_pages
    return found._replace(device=matching._deepest(path, ends, found.best, 0, unbounded, True))


@bug(matching, "anchors", rows=("E2",), kills="spec")
def load_goes_too_deep(state: Any, path: Any, part: int = 0) -> Any:
    """A load goes as deep as full attention does, deeper than the windows and states."""
    found = _anchors(state, path, part)
    return found._replace(best=found.depths[0])


@bug(matching, "_deepest", rows=("E5",), kills="spec")
def match_accepts_window_with_a_gap(
    path: Any, ends: Any, upto: int, index: int, window: int, on_device: bool
) -> int:
    """A match ends where the window has a gap."""
    if not index or window == 1:
        return _deepest(path, ends, upto, index, window, on_device)
    while upto:
        node = path[upto - 1]
        if node.pages[0][index] is not None or not (on_device or node.pages[1][index] is None):
            return upto
        upto -= 1
    return upto


@bug(matching, "probe", kills="spec")
def match_ignores_host(state: Any, key: Any, limit: int, known: Any = None) -> Any:
    """The match that a scheduler plans with ignores what is on host."""
    device, _, depths, deepest = _probe(state, key, limit, known)
    return device, 0, depths, deepest


@bug(boundaries, "changed", kills="near")
def lost_boundaries_stay_live(state: Any, node: Any, index: int) -> None:
    """A boundary that has lost its window or state still counts as live."""
    if boundaries.is_there(node, index):
        _changed(state, node, index)


@bug(boundaries, "is_there", kills="near")
def tombstone_counts_as_present(node: Any, index: int) -> bool:
    """A boundary whose window or state is gone counts as live."""
    return True


@bug(boundaries, "is_live", kills="near")
def boundaries_ignore_the_last_component(state: Any, node: Any) -> bool:
    """A boundary counts as live although the last component is not there."""
    for index, component in enumerate(state.components[:-1]):
        above = node
        while (
            node.end_page - above.end_page < component.window_pages
            and above.parent is not None
            and index
        ):
            if not boundaries.is_there(above, index):
                return False
            above = above.parent
    return True


@bug(kills="rss-bound")
def split_halves_are_views_of_one_array(patch: Patch) -> None:
    """The halves of a split node are views, so a small half keeps the whole array in memory."""

    def views(self: Any, pages: Any, at: int) -> tuple[Any, Any]:
        return pages[:at], pages[at:]

    patch(Full, "split", views)
    patch(SlidingWindow, "split", views)


@bug(swa, "component", rows=("F6",), kills="spec")
def window_is_rounded_down(config: Any) -> swa.SlidingWindow:
    """A window that is no multiple of the page size counts as fewer whole pages."""
    made = _component(config)
    made.window_pages = made.window_tokens // config.page_size
    made.least_pages = made.window_pages + 1
    return made


@bug(types, "root_digest", rows=("H8",), kills="spec")
def digests_ignore_the_namespace(namespace: str) -> bytes:
    """Pages of two namespaces have the same digests."""
    return _root_digest("")


@bug(types, "chain_digests", kills="key-rt")
def digest_covers_half_of_the_one_before(parent: bytes, raw: bytes, stride: int) -> list[bytes]:
    """The digest of a page covers only half of the digest of the page before it."""
    digests = []
    for start in range(0, len(raw), stride):
        parent = hashlib.sha256(parent[:16] + raw[start : start + stride]).digest()
        digests.append(parent)
    return digests
