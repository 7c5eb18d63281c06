"""Ranks of one process: collectives in lockstep, and replies that all ranks have, in one order."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core import actions
from hicache.core.actions import Action, Backup, HostTransfer, Load, Prefill, StorageAction, Store
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, DeleteDone, FetchDone, LookupDone, Reply, StoreDone
from hicache.core.types import NO_PAGES
from hicache.runtime.encoding import Decisions
from hicache.runtime.ranks import (
    REPLIES,
    Agreement,
    Diverged,
    Group,
    Turn,
    UnequalCollectives,
    agree_on_settings,
    local_groups,
    lockstep,
    packed,
    upto,
)

ACTIONS: tuple[Action, ...] = (
    Backup(1, ()),
    Load(2, 0, ()),
    Backup(3, ()),
    Prefill(4, 0, 0, 1, (NO_PAGES,), (2,), True),
    Load(5, 0, ()),
)


class Scripted:
    """An executor whose n-th poll gives the n-th list."""

    def __init__(self, polls: Sequence[Sequence[Reply]]) -> None:
        self.polls = [list(item) for item in polls]
        self.submitted: list[int] = []
        self.abandoned: list[int] = []

    def submit(self, action: HostTransfer | StorageAction) -> None:
        self.submitted.append(action.transfer)

    def abandon(self, transfer: int) -> None:
        self.abandoned.append(transfer)

    def start(self) -> None:
        """Nothing waits for it."""

    def poll(self) -> list[Reply]:
        return self.polls.pop(0) if self.polls else []


def report_of(
    polls: Sequence[Sequence[Sequence[Reply]]], turns: int, actions: Sequence[Action] = ACTIONS
) -> list[list[Reply]]:
    """By poll, what every rank was told: the same. polls: by rank, what ends at which."""
    groups = local_groups(len(polls))
    ranks = [Agreement(Scripted(items), group) for items, group in zip(polls, groups, strict=True)]
    for action in actions:
        for rank in ranks:
            rank.begin(action) if isinstance(action, Prefill) else rank.submit(action)
    result = []
    for _ in range(turns):
        lockstep([rank.agree() for rank in ranks])
        replies = [rank.poll() for rank in ranks]
        assert all(reply == replies[0] for reply in replies)
        result.append(replies[0])
    return result


PIECES = (actions.Piece("full", 0, (b"",) * 4, NO_PAGES),)
STORAGE: tuple[Action, ...] = (
    Store(1, PIECES),
    actions.Lookup(2, 0, 0, (b"",) * 9, 0, (0,)),
    Store(3, PIECES),
    actions.Delete(4),
    actions.Fetch(5, 0, 0, (), 9),
    Backup(6, ()),
)


def test_ranks_agree_on_the_least_number_of_pages() -> None:
    """Of pages that only some ranks have, a rank would lack its part."""
    ranks: list[list[list[Reply]]] = [
        [[StoreDone(1, 3), LookupDone(2, 9), DeleteDone(4, True), FetchDone(5, 1), BackupDone(6)]],
        [[StoreDone(1, 4), LookupDone(2, 0), DeleteDone(4, False), FetchDone(5, 7), BackupDone(6)]],
    ]
    expected: list[Reply] = [
        *(BackupDone(6), StoreDone(1, 3), LookupDone(2, 0), DeleteDone(4, False), FetchDone(5, 1))
    ]
    [items] = report_of(ranks, 1, STORAGE)
    assert items == expected
    assert [type(reply[1]) for reply in items] == [bool, int, int, bool, int]


def test_a_conjunction_that_is_not_so_here_is_refused() -> None:
    """Of what has ended and of numbers; no reply follows."""
    for replies, text in (
        ((), r"has \[0, 0\], and the conjunction for \[1\] is \[1, 3\]"),
        ((1,), r"has \[1, 1\], and the conjunction for \[1\] is \[1, 3\]"),
    ):
        agreement = Agreement(Scripted([[StoreDone(1, reply) for reply in replies]]), Group(0, 1))
        agreement.submit(STORAGE[0])  # type: ignore[arg-type]
        turn = agreement.agree()
        next(turn)
        with pytest.raises(Diverged, match=text):
            turn.send(tuple(packed([0, upto(32), 1, 0b11], [32, 32, 1, 4])))
        assert agreement.poll() == []


ENDS = st.lists(
    st.tuples(st.integers(0, 4), st.booleans()), min_size=len(ACTIONS), max_size=len(ACTIONS)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ENDS, min_size=1, max_size=3))
def test_latencies_and_failures_lead_to_one_order_on_all_ranks(
    ranks: list[list[tuple[int, bool]]],
) -> None:
    """Each once, in the order of its kind, at the latest poll of those before it, good iff all."""
    polls: list[list[list[Reply]]] = []
    for ends in ranks:
        rows: list[list[Reply]] = [[] for _ in range(5)]
        for action, (at, ok) in zip(ACTIONS, ends, strict=True):
            rows[at].append(REPLIES[type(action)](action.transfer, ok))
        polls.append(rows)
    items = report_of(polls, 5)
    for kind in REPLIES:
        latest = 0
        for number, action in enumerate(ACTIONS):
            if type(action) is kind:
                latest = max(latest, *(ends[number][0] for ends in ranks), 0)
                fine = all(ends[number][1] for ends in ranks)
                assert REPLIES[kind](action.transfer, fine) in items[latest]
    assert sum(map(len, items)) == len(ACTIONS)


# -- collectives


def turn(group: Group, script: Sequence[tuple[str, str, list[int]]]) -> Turn[list[object]]:
    result: list[object] = []
    for op, purpose, values in script:
        result.append((yield from getattr(group, op)(purpose, values)))
    return result


def test_collectives_return_minimum_conjunction_and_broadcast() -> None:
    for order in permutations(range(3)):
        script = [("minimum", "a"), ("broadcast", "b"), ("conjunction", "c")]
        turns = [
            turn(group, [(op, name, [order[at], 7]) for op, name in script])
            for at, group in enumerate(local_groups(3))
        ]
        assert lockstep(turns) == [[(0, 7), (order[0], 7), (0, 7)]] * 3


SAME = ("minimum", "acks", [1])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ([SAME, ("minimum", "hits", [1])], ("for acks", "for hits")),
        ([SAME, ("broadcast", "acks", [1])], ("minimum of 1", "broadcast of 1")),
        ([SAME, ("minimum", "acks", [1, 2])], ("minimum of 1", "minimum of 2")),
        ([SAME], ("rank 0 is at collective 2", "rank 1 at no collective")),
        ([], ("rank 0 is at collective 1", "rank 1 at no collective")),
    ],
)
def test_unequal_collectives_are_an_error_that_names_both(
    other: list[tuple[str, str, list[int]]], words: tuple[str, str]
) -> None:
    group, two = local_groups(2)
    with pytest.raises(UnequalCollectives) as error:
        lockstep([turn(group, [SAME, SAME]), turn(two, other)])
    assert (error.value.exit_code, error.value.kind) == (15, "COLL-SEQ")
    assert all(word in str(error.value) for word in words)


# -- decisions and settings


def test_diverged_cores_are_an_error_at_the_next_poll() -> None:
    seen = [Decisions(), Decisions()]
    groups = local_groups(2)
    ranks = [Agreement(Scripted([]), *pair) for pair in zip(groups, seen, strict=True)]
    for decisions in seen:
        decisions.add([actions.Released(1)])
    lockstep([rank.agree() for rank in ranks])
    seen[0].add([actions.Released(2)])
    seen[1].add([actions.Restarted(2)])
    with pytest.raises(Diverged, match="RANK-EQ decisions") as error:
        lockstep([rank.agree() for rank in ranks])
    assert f"rank 0 has digest {seen[0].short()}" in str(error.value)


def test_every_setting_that_differs_is_named_and_pools_take_the_smallest_size() -> None:
    config = Config(4, (8,), (30,))
    larger = replace(config, device_pages=(6,), host_pages=(40,))
    agreed = lockstep(list(map(agree_on_settings, (config, larger), local_groups(2))))
    assert agreed == [replace(config, device_pages=(6,))] * 2
    offers = (config, replace(config, page_size=8), replace(config, write_policy="write_back"))
    with pytest.raises(CallerError, match=r"page_size, write_policy: .* rank 0 has page_size 4"):
        lockstep(list(map(agree_on_settings, offers, local_groups(3))))
