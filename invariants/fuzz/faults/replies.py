"""Replies that the contract forbids, around a good one: each must be refused without a trace."""

from __future__ import annotations

from hicache.core.events import BackupDone, LoadDone, PrefillDone, Reply

from ..records import Pending
from .base import Fault, Player

NOBODY = 1 << 29


class Twice(Fault):
    """The same reply again."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        hand.refused(reply)


class Unknown(Fault):
    """A reply to an action that was never issued comes first."""

    def before(self, hand: Player, one: Pending) -> None:
        for reply in (LoadDone(NOBODY), BackupDone(NOBODY), PrefillDone(NOBODY)):
            hand.refused(reply)


class Crossed(Fault):
    """The reply of another kind of action names this flight."""

    def before(self, hand: Player, one: Pending) -> None:
        name = type(one.action).__name__
        for site, reply in (("Load", LoadDone), ("Backup", BackupDone), ("Prefill", PrefillDone)):
            if site != name:
                hand.refused(reply(one.number))


class Changed(Fault):
    """Good news, then bad news about the same thing."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        hand.refused(reply._replace(ok=not reply.ok))


class TooLate(Fault):
    """A load is said to have failed after the pass that read it."""

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
