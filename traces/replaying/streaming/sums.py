"""The account of a replay whose requests are not held: sums over groups of requests.

A group has one request at first. When there are `MOST` groups, each two become one, so the memory
is bounded. The last half of the served requests begins with the first group after their middle, and
is exact as long as no groups were joined. Definitions are those of `account`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.engine.sequence import RequestResult

from ...formats._jobs import Jobs
from ...formats._streamed import Held
from ...results.record import NO_SHARE, Share, Tiers, share
from ..account import Account, Row, Tokens

MOST = 1 << 16
Each: TypeAlias = Callable[[Row, int, RequestResult | None], None]
_REQUESTS, _INPUT, _DEVICE, _HOST, _STORAGE, _CEILING, _LOST, _HIT_PAGES, _PAGES = range(9)


class Sums(Account):
    """See the module. known: what is known of a request that is served. each: is called with what
    every request hit, its output tokens, and `result`: that of the request, where there are times.
    """

    def __init__(
        self,
        page_size: int,
        known: Callable[[int], Held],
        each: Each | None = None,
        most: int = MOST,
    ) -> None:
        super().__init__(Jobs(), page_size, np.zeros(0, dtype=np.int32))
        self._known = known
        self._each = each
        self.result: RequestResult | None = None
        self._shift = 0
        self._rows = np.zeros((most, 9), dtype=np.int64)
        self._rates = np.zeros(most)

    @property
    def group(self) -> int:
        """The requests of a group."""
        return 1 << self._shift

    def admit(self, index: int, device: int, host: int, storage: int = 0) -> None:
        """Records a request, once, when it has been served."""
        held = self._known(index)
        total, ceiling = held.input_length, held.ceiling
        while index >> self._shift >= len(self._rows):
            self._join()
        hit, size = device + host + storage, self._page_size
        place = index >> self._shift
        self._rows[place] += (
            *(1, total, device, host, storage, ceiling, max(0, ceiling - hit)),
            *(-(-hit // size), -(-total // size)),
        )
        self._rates[place] += hit / total
        if self._each is not None:
            row = Row(index, total, ceiling, device, host, storage)
            self._each(row, held.output_length, self.result)

    def served(self, index: int) -> bool:
        raise NotImplementedError("the requests of a trace that is read once are not kept")

    def all_served(self) -> NDArray[np.int64]:
        raise NotImplementedError("the requests of a trace that is read once are not kept")

    def _tiers(self) -> tuple[Tokens, Tokens, Tokens]:
        raise NotImplementedError("the requests of a trace that is read once are not kept")

    def _share(self, steady: bool) -> Share:
        served = np.flatnonzero(self._rows[:, _REQUESTS])
        if steady:
            before = np.cumsum(self._rows[served, _REQUESTS]) - self._rows[served, _REQUESTS]
            served = served[before >= int(self._rows[:, _REQUESTS].sum()) // 2]
        rows, rates = self._rows[served], self._rates[served]
        sums = [int(column) for column in rows.sum(axis=0)]
        if not sums[_REQUESTS]:
            return NO_SHARE
        return share(
            sums[_REQUESTS],
            sums[_INPUT],
            Tiers(sums[_DEVICE], sums[_HOST], sums[_STORAGE]),
            sums[_CEILING],
            sums[_LOST],
            sums[_HIT_PAGES] / sums[_PAGES],
            float(rates.sum() / sums[_REQUESTS]),
        )

    def _join(self) -> None:
        """Each two groups become one."""
        half = len(self._rows) // 2
        self._rows[:half] = self._rows[0::2] + self._rows[1::2]
        self._rates[:half] = self._rates[0::2] + self._rates[1::2]
        self._rows[half:], self._rates[half:] = 0, 0.0
        self._shift += 1
