"""An executor of storage in virtual time: two pipes, the latency of a batch, and what goes wrong.

A lookup and a delete take the latency of the store. A fetch and a store move their values through
the pipe of their direction; a value is read when it has moved, and written when its batch has
moved. `abandon` ends a lookup at once with nothing, and a fetch or store with what has moved. A
store that hangs answers only what is abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hicache.core.actions import Delete, Fetch, Lookup, Piece, StorageAction, Store
from hicache.core.types import FlightId

from ..clock import Timer
from ..keyed_draw import draw
from .contents import Contents, Medium
from .executor import StoreExecutor
from .options import MILLION, StoreOptions
from .page_bytes import PageBytes
from .pipe import Pipe

_SLOWER = 10


class TimedStore(StoreExecutor):
    """See the module. value_bytes: of one value, by component."""

    def __init__(
        self,
        clock: Timer,
        options: StoreOptions,
        contents: Contents,
        value_bytes: Mapping[str, int],
        page_bytes: PageBytes,
    ) -> None:
        super().__init__(contents, tuple(value_bytes), page_bytes)
        self._clock = clock
        self._options = options
        self._value_bytes = value_bytes
        self.reads = Pipe(clock, options.read_bytes_per_s, options.latency_ns)
        self.writes = Pipe(clock, options.write_bytes_per_s, options.latency_ns)
        self._hung: dict[FlightId, StorageAction] = {}
        self._batches = 0

    def submit(self, action: StorageAction) -> None:
        super().submit(action)
        factor = self._factor()
        if type(action) is Fetch or type(action) is Store:
            pipe = self.reads if type(action) is Fetch else self.writes
            pipe.send(action.flight, self._sizes(action.pieces), self._mover(action), factor)
        else:
            self._clock.after(self._options.latency_ns * factor, lambda: self._asked(action))

    def abandon(self, flight: FlightId) -> None:
        action = self._open.get(flight)
        if action is None or type(action) is Delete:
            return
        if self._hung.pop(flight, None) is not None:
            self._lose(action)
        elif type(action) is Lookup:
            self._fail(action)
        elif not self.reads.cut(flight):
            self.writes.cut(flight)

    def crash(self, medium: Medium) -> None:
        """Writes what has moved of the stores under way, without syncing it, and tears the value
        that is moving. medium: what this store keeps its values on."""
        for action in list(self._open.values()):
            if type(action) is not Store:
                continue
            moved = self.writes.moved(action.flight)
            names = [(piece.component, one) for piece in action.pieces for one in piece.digests]
            for name in names[:moved]:
                medium.put(name)
            if moved < len(names) and self.writes.is_moving(action.flight):
                medium.put(names[moved], whole=False)

    def _factor(self) -> int:
        """How many times as long this batch takes."""
        if not self._options.slow:
            return 1
        self._batches += 1
        slow = draw(MILLION, self._options.seed, "slow", self._batches) < self._options.slow
        return _SLOWER if slow else 1

    def _sizes(self, pieces: Sequence[Piece]) -> list[int]:
        return [self._value_bytes[piece.component] for piece in pieces for _ in piece.digests]

    def _mover(self, action: Fetch | Store) -> Callable[[int], None]:
        def ended(values: int) -> None:
            if self._answers(action):
                if type(action) is Fetch:
                    self._fetched(action, values)
                elif type(action) is Store:
                    self._stored(action, values)

        return ended

    def _asked(self, action: StorageAction) -> None:
        if action.flight in self._open and self._answers(action):
            if type(action) is Lookup:
                self._looked_up(action)
            elif type(action) is Delete:
                self._deleted(action)

    def _answers(self, action: StorageAction) -> bool:
        """Whether the store is there. If it is dead, the action fails; if it hangs, it waits."""
        now_ns = self._clock.now_ns
        if self._options.hangs(now_ns):
            self._hung[action.flight] = action
            if self._options.back_at_ns > now_ns:
                self._clock.after(self._options.back_at_ns - now_ns, lambda: self._woken(action))
            return False
        if self._options.is_dead(now_ns):
            self._lose(action)
            return False
        return True

    def _woken(self, action: StorageAction) -> None:
        if self._hung.pop(action.flight, None) is not None:
            self._lose(action)
