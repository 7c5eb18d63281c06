"""The books of a fleet: every request ends once, where it was sent, and every byte arrives once.

Lives here: what was sent and what came back, told by the router's side and by the replicas' side
apart, and the comparison. Does not route or move anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.errors import About

from ..errors import SimError


@dataclass(slots=True)
class Moved:
    """One prompt on the link. bytes: that left, and that arrived; -1 before that."""

    sender: int
    receiver: int
    left: int
    arrived: int = -1


class Ledger:
    """See the module. Raises SimError for the first entry that contradicts another."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}  # the replica that must end each request
        self._ended: dict[int, int] = {}
        self._moved: dict[int, list[Moved]] = {}

    def sent(self, request: int, replica: int) -> None:
        """A request was given to a replica. Only a request that has not ended may be given on."""
        if request in self._ended:
            raise _wrong("sent-once", request, "no replica after its end", f"replica {replica}")
        self._sent[request] = replica

    def ended(self, request: int, replica: int) -> None:
        """A replica says that it has served a request to its end."""
        expected = self._sent.get(request, -1)
        if replica != expected:
            raise _wrong("ends-where-sent", request, f"replica {expected}", f"replica {replica}")
        if request in self._ended:
            raise _wrong("ends-once", request, "one end", f"a second on replica {replica}")
        self._ended[request] = replica

    def left(self, request: int, sender: int, receiver: int, count: int) -> None:
        """Bytes of a request begin to move."""
        moves = self._moved.setdefault(request, [])
        if moves and moves[-1].arrived < 0:
            raise _wrong("moves-once", request, "one transfer at a time", "a second")
        moves.append(Moved(sender, receiver, count))

    def arrived(self, request: int, receiver: int, count: int) -> None:
        """A replica has bytes of a request in its pages."""
        moves = self._moved.get(request)
        if not moves or moves[-1].arrived >= 0:
            raise _wrong("arrives-once", request, "no more bytes", f"{count} on {receiver}")
        move = moves[-1]
        if (move.receiver, move.left) != (receiver, count):
            expected = f"{move.left} bytes on replica {move.receiver}"
            raise _wrong("arrives-whole", request, expected, f"{count} on replica {receiver}")
        move.arrived = count

    def close(self, requests: int, link_bytes: int) -> None:
        """At the end of a run. link_bytes: as the link counted them."""
        if len(self._ended) != requests or self._sent != self._ended:
            late = sorted(self._sent.items() - self._ended.items())[:3]
            found = f"{len(self._ended)} ends, without (request, replica) {late}"
            raise SimError(f"fleet: expected {requests} requests to end, found {found}")
        moves = [(request, move) for request, found in self._moved.items() for move in found]
        for request, move in moves:
            if move.arrived != move.left:
                raise _wrong("arrives-once", request, f"{move.left} bytes", "none on the other end")
        if sum(move.left for _, move in moves) != link_bytes:
            expected = sum(move.left for _, move in moves)
            raise SimError(f"KV link: expected {expected} bytes in all, found {link_bytes}")


def _wrong(rule: str, request: int, expected: str, found: str) -> SimError:
    text = f"request {request} ({rule}): expected {expected}, found {found}"
    return SimError(text, rule, About("request", request))
