"""A small model of the list of states in SGLang's MambaRadixCache, before pull request 31643.

It serves the 12-round table of docs/benchmarks.md: conversations that share nothing, so that memory
for full attention never matters. Facts from SGLang's source, not its code: a hit moves all states
of its path to the end of the list, shallow ones first; the state at the front goes first; a running
request owns three states, leaves one behind its prompt and one behind its answer, and asks for
three free ones even when a hit has given it the first. It shares no code with the core. Run it:

    python -m tests.bench.state_lists
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from dataclasses import dataclass
from random import Random

PUBLISHED = (0.583333, 0.60, 0.58, 0.60, 0.44, 0.72, 0.55, 0.65, 0.47, 0.56, 0.45)
CLIENTS, ROUNDS, TOKENS, PAGE, STATES = 10, 12, 256, 64, 50
OWNED = 3  # states of a running request
PREFILL_S = 0.05
HEARTBEAT = CLIENTS  # the client that sends the request at each barrier
SEEDS = 300


@dataclass(frozen=True, slots=True)
class Variant:
    """deep_first: of one path, the deeper state goes first. late: a hit moves its path to the end
    when the request has its states, and not before (as in this project's cache, in which a refused
    request changes nothing). heartbeat: the script's request at each barrier. turn_s: from the
    first token of an answer to its last one."""

    rate: float = 1.0
    turn_s: float = 1.9
    deep_first: bool = False
    late: bool = False
    heartbeat: bool = False


VARIANTS = (
    Variant(),
    Variant(heartbeat=True),
    Variant(late=True),
    Variant(late=True, deep_first=True),
    Variant(deep_first=True),
    Variant(rate=16.0),
    Variant(rate=16.0, heartbeat=True),
)


class Lists:
    """states: (client, depth), the least recent first. locked: those of running requests."""

    def __init__(self, deep_first: bool, late: bool) -> None:
        self.states: list[tuple[int, int]] = []
        self.locked: dict[int, int] = {}
        self.owned = 0
        self._deep_first = deep_first
        self.late = late

    def need(self, count: int) -> None:
        """Evicts until so many states are free."""
        while STATES - self.owned - len(self.states) < count:
            free = (one for one in self.states if self.locked.get(one[0]) != one[1])
            self.states.remove(next(free))

    def found(self, client: int) -> int:
        return max((depth for one, depth in self.states if one == client), default=0)

    def touch(self, client: int) -> None:
        path = sorted((one for one in self.states if one[0] == client), reverse=self._deep_first)
        self.states = [one for one in self.states if one[0] != client] + path

    def add(self, client: int, depth: int) -> None:
        if (client, depth) not in self.states:
            self.states.append((client, depth))
        self.touch(client)


def rounds(variant: Variant, seed: int) -> list[float]:
    """The hit rate of each round."""
    draw, lists = Random(seed), Lists(variant.deep_first, variant.late)
    rates = []
    for turn in range(ROUNDS):
        prompt = TOKENS * (2 * turn + 1)
        order = draw.sample(range(CLIENTS), CLIENTS)
        sent = itertools.accumulate(draw.expovariate(variant.rate) for _ in order)
        events = [(time, client, 0) for time, client in zip(sent, order, strict=True)]
        heapq.heapify(events)
        hits = 0
        while events:
            time, client, step = heapq.heappop(events)
            if step == 0:
                hits += begin(lists, client)
                heapq.heappush(events, (time + PREFILL_S, client, 1))
            elif step == 1:
                lists.need(1)
                lists.add(client, prompt)
                lists.locked[client] = prompt
                heapq.heappush(events, (time + variant.turn_s, client, 2))
            else:
                end(lists, client, prompt + TOKENS - 1)
        rates.append(hits / (CLIENTS * prompt))
        if variant.heartbeat:
            begin(lists, HEARTBEAT)
            lists.need(1)
            lists.add(HEARTBEAT, PAGE)
            end(lists, HEARTBEAT, 199)
    return rates


def begin(lists: Lists, client: int) -> int:
    """Takes the states of a request. Returns its hit."""
    hit = lists.found(client)
    if not lists.late:
        lists.touch(client)
    lists.locked[client] = hit
    if hit:
        lists.need(1)
        lists.owned += 1
    lists.need(OWNED)
    lists.owned += OWNED - bool(hit)
    if lists.late:
        lists.touch(client)
    return hit


def end(lists: Lists, client: int, tokens: int) -> None:
    lists.owned -= OWNED
    lists.add(client, tokens // PAGE * PAGE)
    del lists.locked[client]


def main() -> None:
    weights = [2 * turn + 1 for turn in range(ROUNDS)]
    for variant in VARIANTS:
        runs = [rounds(variant, seed) for seed in range(SEEDS)]
        totals = [statistics.fmean(run, weights) for run in runs]
        apart = [math.dist(a[1:], b[1:]) / 11**0.5 for a, b in itertools.pairwise(runs)]
        away = [math.dist(run[1:], PUBLISHED) / 11**0.5 for run in runs]
        print(
            f"{variant}: in all {statistics.mean(totals):.3f} +- {statistics.stdev(totals):.3f}; "
            f"RMSE {statistics.median(away):.3f}, between two runs {statistics.median(apart):.3f}"
        )


if __name__ == "__main__":
    main()
