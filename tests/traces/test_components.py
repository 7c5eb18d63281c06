"""`hits` mode with several components: rates, what ended each hit, orders of eviction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from hicache.core.config import Config
from tests.configs import configured
from traces.replaying.account import Account, Miss, Misses, ceiling_of
from traces.replaying.account import turns_of as places_of
from traces.replaying.playing import HitsReplay

from .rig import HEADER, native, read


class Chat(NamedTuple):
    """Conversations in turn: `tokens` asked and as many answered, in pages of `page` tokens."""

    clients: int
    rounds: int
    tokens: int
    page: int


def simulate_states(chat: Chat, slots: int, whole_path: bool) -> list[int]:
    """Hit tokens per request, in order of the rounds, of a prefix cache in naive lines: memory for
    Full without end, few states. It shares no code and no data structure with the core.

    A request locks the deepest state of its conversation, takes three slots, copies the state,
    leaves one behind its prompt (which takes another slot) and one behind its answer, and gives the
    other two back. Where no slot is free the least recently used state goes, the one nearer to the
    root of equals, searched from end to end. whole_path: a use of a state refreshes every state
    above it, too.
    """
    held: dict[tuple[int, int], int] = {}  # (client, depth) -> last use
    hits = []
    tick = 0

    def make_room(own: int, locked: tuple[int, int]) -> None:
        while len(held) + own > slots:
            del held[min((one for one in held if one != locked), key=lambda it: (held[it], it[1]))]

    def use(client: int, depth: int) -> None:
        held[client, depth] = tick
        if whole_path:
            held.update((other, tick) for other in held if other[0] == client and other[1] < depth)

    for turn in range(chat.rounds):
        for client in range(chat.clients):
            prompt = (2 * turn + 1) * chat.tokens
            hit = max((depth for owner, depth in held if owner == client), default=0)
            make_room(3, (client, hit))
            tick += 1
            if hit:
                use(client, hit)
            hits.append(hit)
            make_room(4, (client, hit))
            for length in (prompt, prompt + chat.tokens - 1):
                tick += 1
                use(client, length // chat.page * chat.page)
    return hits


@pytest.mark.parametrize("order", ["lru", "lru_path"])
@pytest.mark.parametrize("states", [14, 16, 20, 32])
def test_states_are_evicted_in_the_order_of_a_naive_cache(order: str, states: int) -> None:
    chat = Chat(clients=6, rounds=5, tokens=128, page=64)
    paged = conversations(chat)
    config = Config(64, (10_000, states), (0, 0), ("full", "mamba"), eviction_policy=order)
    found = hits_of(paged, config)
    assert found == simulate_states(chat, states, whole_path=order == "lru_path")
    assert len(set(found)) > 2


def conversations(chat: Chat) -> Any:
    records: list[object] = [HEADER]
    for turn in range(chat.rounds):
        for client in range(chat.clients):
            history = [
                (f"{side}{client}.{before}", chat.tokens) for before in range(turn) for side in "qa"
            ]
            start = {"after": len(records) - 1 - chat.clients} if turn else {}
            records.append(
                native(
                    *history,
                    (f"q{client}.{turn}", chat.tokens),
                    output=(f"a{client}.{turn}", chat.tokens),
                    **start,
                )
            )
    return read(*records).paged(chat.page)


def hits_of(paged: Any, config: Config, lookups: Misses | None = None) -> list[int]:
    account = Account(paged.jobs, paged.page_size, ceiling_of(paged, whole_prompts=True))
    replay = HitsReplay(paged, config, account, (lookups,) if lookups else ())
    replay.run(lambda done: None)
    return [row.hit_tokens for row in account.rows()]


def test_a_hit_reports_the_component_that_limited_it() -> None:
    """Three prompts leave their first block apart; two more come back for what is left of them."""
    trunk, size = [f"b{number}" for number in range(8)], 64
    records: list[object] = [HEADER]
    for number, shared in enumerate((8, 8, 4, 8)):
        prompt = [(name, 2 * size) for name in trunk[:shared]]
        records.append(native(*prompt, (f"own{number}", size), output=(f"a{number}", 1)))
    paged = read(*records).paged(size)
    ceiling = -(-ceiling_of(paged, whole_prompts=True) // size)

    def found(*others: str) -> list[tuple[str, int]]:
        components = ("full", *others)
        pools = (99,) * len(components)
        window = 3 * size if "swa" in others else 0
        config = configured(size, pools, (0,) * len(pools), components, swa_window=window)
        rows: dict[int, Miss] = {}
        hits_of(paged, config, Misses(components, ceiling, rows))
        return [tuple(rows[index][:2]) for index in sorted(rows)]

    # a prompt leaves a boundary at its end, and one where it left what was known
    for name in ("mamba", "swa"):
        assert found(name) == [("first_seen", 0), (name, 0), (name, 0), ("first_seen", 16)]
    both = [row[0] for row in found("swa", "mamba")]
    assert both == ["first_seen", "together", "together", "first_seen"]


def test_turns_continue_their_conversation() -> None:
    first = native(("q", 128), output=("a", 64))
    second = native(("q", 128), ("a", 64), ("r", 64), output=("b", 64), after=0)
    queued = native(("x", 512), output=("y", 64), after=1)
    again = native(("q", 128), output=("a", 64), after=2)
    paged = read(HEADER, first, second, queued, again).paged(64)
    assert places_of(paged).tolist() == [0, 1, 0, 0]
    account = Account(paged.jobs, 64, ceiling_of(paged, whole_prompts=True))
    for index, hit in enumerate((0, 128, 0, 128)):
        account.admit(index, hit, 0)
    found = account.by_turn(places_of(paged))
    assert [(turn.turn, turn.requests, turn.hit_tokens) for turn in found] == [
        (1, 3, 128),
        (2, 1, 128),
    ]
    assert account.by_turn(np.zeros(4, dtype=np.int32)) == []
