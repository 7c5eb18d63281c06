"""What a router knows of the load of each replica: from what it sent there and what came back.

    waiting  prompt tokens to compute, of the requests whose first token has not come back
    held     prompt tokens of the requests that have not ended
    sent     prompt tokens of all requests so far

A router does not know how long answers will be, so generated tokens are not in these figures. Does
not choose a replica.
"""

from __future__ import annotations


class Loads:
    """See the module; one figure for each replica."""

    def __init__(self, replicas: int) -> None:
        self.waiting = [0] * replicas
        self.held = [0] * replicas
        self.sent = [0] * replicas
        self._open: dict[int, tuple[int, int, int]] = {}  # replica, tokens to compute, prompt

    def send(self, request: int, replica: int, prompt: int, compute: int) -> None:
        """A request goes to a replica. compute: prompt tokens that it is believed to compute."""
        self._open[request] = (replica, compute, prompt)
        self.waiting[replica] += compute
        self.held[replica] += prompt
        self.sent[replica] += prompt

    def answer(self, request: int) -> None:
        """The first token of a request came back. Later answers change nothing."""
        if (found := self._open.get(request)) is not None:
            replica, compute, prompt = found
            self.waiting[replica] -= compute
            self._open[request] = (replica, 0, prompt)

    def end(self, request: int) -> None:
        """A request has ended, or left the replica."""
        replica, compute, prompt = self._open.pop(request)
        self.waiting[replica] -= compute
        self.held[replica] -= prompt

    def least(self) -> int:
        """The replica with the fewest tokens held, then sent; then the first."""
        return min(range(len(self.held)), key=lambda one: (self.held[one], self.sent[one], one))
