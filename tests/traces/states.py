"""A prefix cache of recurrent states in fifty naive lines: memory for Full without end, few states.

Conversations of equal turns, one request at a time. A request locks the deepest state of its
conversation, takes three slots, copies the state, leaves one behind its prompt (which takes another
slot) and one behind its answer, and gives the other two back. Where no slot is free the least
recently used state goes, the one nearer to the root of equals, searched from end to end. It shares
no code and no data structure with the core.
"""

from __future__ import annotations

from typing import NamedTuple


class Chat(NamedTuple):
    """Conversations in turn: `tokens` asked and as many answered, in pages of `page` tokens."""

    clients: int
    rounds: int
    tokens: int
    page: int


def simulate_states(chat: Chat, slots: int, whole_path: bool) -> list[int]:
    """Hit tokens per request, in order of the rounds.

    whole_path: a use of a state refreshes every state above it, too.
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
