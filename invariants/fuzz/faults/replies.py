"""Forbidden replies before or after a good one. The core must refuse each and stay unchanged."""

from __future__ import annotations

from hicache.core.events import (
    BackupDone,
    DeleteDone,
    FetchDone,
    LoadDone,
    LookupDone,
    PrefillDone,
    Reply,
    StoreDone,
)

from ..records import Pending
from .base import Fault, Player

NOBODY = 1 << 29
_OF_STORAGE = (
    ("Lookup", LookupDone),
    ("Fetch", FetchDone),
    ("Store", StoreDone),
    ("Delete", DeleteDone),
)


class Twice(Fault):
    """Repeats the reply."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        hand.refused(reply)


class Unknown(Fault):
    """Sends a reply to an unknown action before the reply."""

    def before(self, hand: Player, one: Pending) -> None:
        for reply in (LoadDone(NOBODY), BackupDone(NOBODY), PrefillDone(NOBODY)):
            hand.refused(reply)


class Crossed(Fault):
    """Sends a reply of another kind for this flight."""

    def before(self, hand: Player, one: Pending) -> None:
        name = type(one.action).__name__
        for site, reply in (
            ("Load", LoadDone),
            ("Backup", BackupDone),
            ("Prefill", PrefillDone),
            *(_OF_STORAGE if hand.config.storage else ()),
        ):
            if site != name:
                hand.refused(reply(one.number))


class Changed(Fault):
    """Repeats the reply with the opposite result."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        if isinstance(reply, LookupDone | FetchDone | StoreDone):
            hand.refused(reply._replace(pages=int(not reply.pages)))
        else:
            hand.refused(reply._replace(ok=not reply.ok))


class TooLate(Fault):
    """Reports the failure of a load after the pass that read it."""

    sites = ("Load",)

    def before(self, hand: Player, one: Pending) -> None:
        if one.number in hand.landed:
            hand.refused(LoadDone(one.number, False))


KINDS = {
    "repeated reply": Twice(),
    "unknown reply": Unknown(),
    "reply of another kind": Crossed(),
    "contradicting reply": Changed(),
    "load fails after its pass": TooLate(),
}
