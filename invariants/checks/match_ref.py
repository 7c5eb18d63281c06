"""Matches against brute force."""

from __future__ import annotations

from hicache.core.actions import Matched, Seated
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.story import request


class MatchReference(Check):
    name = "MATCH-REF"
    sentence = (
        "A match is the longest cached prefix by brute force over all cached prefixes: on device, "
        "and behind that on any tier; and it changes nothing."
    )
    watches = (Matched, Seated)

    def see(self, book: Book, item: Matched | Seated, view: CoreView) -> None:
        seat = book.seats.by_id.get(item.request)
        if seat is None:
            self.fail(f"request {item.request} is answered but unknown", request(item.request))
        device, host = seat.expected
        if type(item) is Matched:
            if view.touched:
                self.fail(f"a match touched nodes {list(view.touched)}", request(item.request))
        else:
            config = book.config
            quota = config.load_quota_pages
            least = max(1, config.load_threshold_pages)
            if not seat.may_load or host < least or (quota and host > quota):
                host = 0
        if (item.device_pages, item.host_pages) != (device, host):
            self.fail(
                f"request {item.request}: expected {device} device and {host} host pages, found "
                f"{item.device_pages} and {item.host_pages}",
                request(item.request),
            )


def check() -> MatchReference:
    return MatchReference()
