"""A prefix cache of recurrent states in forty naive lines: memory for Full without end, few states.

Conversations of equal turns. A request copies the deepest state of its conversation, leaves one
behind its prompt and one behind its answer, and the least recently used goes, searched from end to
end. It shares no code and no data structure with the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Chat(NamedTuple):
    """Conversations in turn: `tokens` asked and as many answered, in pages of `page` tokens."""

    clients: int
    rounds: int
    tokens: int
    page: int


def simulate_states(chat: Chat, states: int, whole_path: bool) -> list[int]:
    """Hit tokens per request, in order of the rounds. states: beside those of the one that runs.

    whole_path: a hit refreshes every state above it, and not just the one that it copies.
    """
    held: Sequence[dict[int, int]] = [{} for _ in range(chat.clients)]  # depth -> last use
    hits = []
    tick = 0

    def leave(client: int, depth: int) -> None:
        if depth not in held[client] and sum(map(len, held)) == states:
            _, _, owner, oldest = min(
                (used, -at, owner, at)
                for owner, path in enumerate(held)
                for at, used in path.items()
            )
            del held[owner][oldest]
        use(client, depth)

    def use(client: int, depth: int) -> None:
        path = held[client]
        path[depth] = tick
        if whole_path:
            path.update((above, tick) for above in path if above < depth)

    for turn in range(chat.rounds):
        for client in range(chat.clients):
            prompt = (2 * turn + 1) * chat.tokens
            tick += 1
            hit = max((depth for depth in held[client] if depth <= prompt), default=0)
            hits.append(hit)
            if hit:
                use(client, hit)
            for length in (prompt, prompt + chat.tokens - 1):
                tick += 1
                leave(client, length // chat.page * chat.page)
    return hits
