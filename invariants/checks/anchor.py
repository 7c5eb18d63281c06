"""The shared pages of a request belong to the nodes of its path."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Admitted, Cached
from hicache.core.events import Finished, Retracted
from hicache.core.types import Pages
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.kinds import Kind
from invariants.books.mirror import NodeMirror
from invariants.books.pages import same
from invariants.books.requests import RequestMirror
from invariants.books.story import node, request


class Anchor(Check):
    name = "ANCHOR"
    sentence = (
        "The pages that a request shares are exactly those of the nodes on the path to its "
        "anchor, in order, and that path is its own prefix."
    )
    watches = (Admitted, Cached, Finished, Retracted)

    def see(
        self, book: Book, item: Admitted | Cached | Finished | Retracted, view: CoreView
    ) -> None:
        if book.missing:
            self.fail(f"expected a node, found none: {book.missing[0]}", request(item.request))
        if type(item) is Finished or type(item) is Retracted:
            return
        req, record = book.requests.by_id.get(item.request), view.requests.get(item.request)
        if req is None or record is None:
            self.fail(f"request {item.request} is answered but unknown", request(item.request))
        depth = _depth(item)  # type: ignore[arg-type]
        shared = req.shared_pages
        if record.shared_pages != req.boundary:
            self.fail(
                f"request {item.request}: expected {req.boundary} shared pages on record, found "
                f"{record.shared_pages}",
                request(item.request),
            )
        if len(shared) < depth or (type(item) is Admitted and len(shared) != depth):
            self.fail(
                f"request {item.request}: expected {depth} shared pages, found {len(shared)}",
                request(item.request),
            )
        end = len(shared)
        step = book.nodes.at.get(int(req.tags[end - 1])) if end else None
        while step is not None and step.parent is not None:
            start = step.end_page - step.span
            if not _same(step, shared[start:end]):
                self.fail(
                    f"request {item.request}: pages {start}..{end} of its table are not those of "
                    f"node {step.id}",
                    request(item.request),
                )
            for kind in book.kinds[1:]:
                if kind.positional:
                    self._window(req, step, kind)
            end, step = start, step.parent
        if end:
            self.fail(
                f"request {item.request}: no node ends at page {end} of its prefix",
                request(item.request),
            )

    def _window(self, req: RequestMirror, step: NodeMirror, kind: Kind) -> None:
        """Checks the window pages in the table against the node's, where the boundary requires
        them.
        """
        held = step.pages[kind.at]
        mine = req.tables[kind.at][step.end_page - step.span : step.end_page]
        if held is None or same(mine, held):
            return  # a load fills these positions, or they are not read
        required = np.arange(step.end_page - step.span, step.end_page) >= req.low - kind.need
        required &= req.boundary - kind.need < step.end_page <= req.boundary
        wrong = (mine != held) & ((mine >= 0) | required)
        if wrong.any():
            at = int(wrong.argmax())
            self.fail(
                f"request {req.id}, boundary {req.boundary}: {kind.name} page "
                f"{step.end_page - step.span + at} of its table is {mine[at]}, expected node "
                f"{step.id}'s {held[at]}",
                request(req.id),
                node(step.id),
            )


def _depth(item: Admitted | Cached) -> int:
    """Number of leading backbone pages that the request shares now."""
    if type(item) is Cached:
        return item.pages
    loads = item.loaded_pages[0] if item.loaded_pages else item.host_pages  # type: ignore[union-attr]
    return item.device_pages + item.host_pages - loads  # type: ignore[union-attr]


def _same(mirror: NodeMirror, pages: Pages) -> bool:
    held = mirror.pages[0]
    return held is not None and held.tobytes() == pages.tobytes()


def check() -> Anchor:
    return Anchor()
