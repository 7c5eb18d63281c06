"""Marks: what some eviction policies remember of nodes, and the two queues of second chances.

Nothing here runs for a policy that does not ask for marks. Every change comes from an event of the
core: a node is inserted, visited or split, a copy comes to the device or leaves it, and a copy at
the front of a queue is spared. Does not choose victims; see `lru`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..state import State
from ..types import BACKBONE, DEVICE
from .lru import next_garbage, next_of_queue, offer
from .node import Marks, Node

PER_POSITIONS = 1024  # tokens to which `recompute_position_cost` applies


def begin_event(state: State) -> None:
    """From now on, what was evicted by the event before counts as evicted."""
    state.age[:] = state.next_age
    state.newest_before = state.newest
    state.turn += 1
    for chances in state.chances:
        if chances.buried:
            chances.remember()


def mark_new(state: State, node: Node) -> None:
    """The node was inserted."""
    marks = node.marks = Marks(len(state.components))
    marks.age, marks.place = state.age.copy(), [state.turn] * len(state.components)
    marks.earlier, state.newest = state.newest_before, state.tick
    _set_cost(state, node)


def mark_split(state: State, upper: Node, node: Node) -> None:
    """The node was split. What the halves cost depends on where they end."""
    upper.marks = node.marks.copy()
    _set_cost(state, upper)


def _set_cost(state: State, node: Node) -> None:
    config = state.config
    tokens = node.end_page * config.page_size
    cost = config.recompute_token_cost + config.recompute_position_cost * tokens // PER_POSITIONS
    node.marks.cost = [cost if one.positional else cost * node.end_page for one in state.components]


def visit(state: State, nodes: Sequence[Node], ends: Sequence[int]) -> None:
    """A request uses these nodes, which others inserted: the backbone of all of them, and another
    component where one of the boundaries `ends` requires it."""
    most = state.second_chance.most_chances if state.second_chance is not None else 0
    for index, component in enumerate(state.components):
        whole = index == BACKBONE or state.eviction.whole_path
        for node in nodes:
            if not whole and not any(
                0 <= end - node.end_page < component.window_pages for end in ends
            ):
                continue
            marks = node.marks
            marks.visits[index] += 1
            marks.age[index] = state.age[index]
            marks.chances[index] = min(most, marks.chances[index] + 1)


def note_eviction(state: State, node: Node, index: int) -> None:
    """A copy leaves the device: the component is at least as old as its rank."""
    rank = state.eviction.rank(node, index)
    if rank > state.next_age[index]:
        state.next_age[index] = rank


def came(state: State, node: Node, index: int, pages: int, digests: Sequence[bytes]) -> None:
    """A copy came to the device: it goes to the end of the small queue, or of main if the ghost
    knows its first page. pages: how many it has. digests: of these pages."""
    chances, marks = state.chances[index], node.marks
    node.queued &= ~state.queues[index][DEVICE].bits[0]  # an entry with its former place
    known = digests[0] in chances.ghost
    marks.place[index], marks.chances[index], marks.in_main[index] = state.turn, 0, known
    if not known:
        chances.small_pages += pages
        return
    for digest in digests:
        chances.ghost.pop(digest, None)


def left(state: State, node: Node, index: int, digests: Sequence[bytes]) -> None:
    """Pages of a copy were evicted from the device. digests: of these pages."""
    if not node.marks.in_main[index]:
        state.chances[index].buried.extend(digests)


def gone(state: State, node: Node, tier: int, index: int, pages: int) -> None:
    """So many pages of the node's copy are not cached on the tier any more."""
    if tier == DEVICE and not node.marks.in_main[index]:
        state.chances[index].small_pages -= pages


def next_spared(state: State, index: int) -> Node | None:
    """Take the next victim on device out of the two queues of a component. Copies before it that
    have chances go to the end of main. None if there is no candidate."""
    queue, chances, policy = state.queues[index][DEVICE], state.chances[index], state.eviction
    node = next_garbage(queue, policy)
    while node is None:
        main_first = chances.small_pages < chances.small_most
        node = next_of_queue(queue, policy, main_first)
        if node is None:
            node = next_of_queue(queue, policy, not main_first)
        if node is None:
            return None
        if _spare(state, node, index):
            offer(state.queues, policy, node, DEVICE, index)
            node = None
    return node


def _spare(state: State, node: Node, index: int) -> bool:
    """Whether the copy at the front of its queue is spared; then it goes to the end of main."""
    policy, marks = state.second_chance, node.marks
    pages = node.pages[DEVICE][index]
    if policy is None or pages is None:
        return False
    if marks.in_main[index]:
        if not marks.chances[index]:
            return False
        marks.chances[index] -= 1
    else:
        if marks.chances[index] < policy.visits_to_main:
            return False
        marks.chances[index] = 0
        marks.in_main[index] = True
        state.chances[index].small_pages -= len(pages)
    state.turn += 1
    marks.place[index] = state.turn
    return True
