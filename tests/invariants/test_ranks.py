"""Several ranks in the fuzzer: alike without a bug, found apart with one, and read from a
sequence."""

from dataclasses import replace
from typing import Any

import pytest

from hicache.core.config import Config
from hicache.core.events import EvictWanted, LoadDone
from hicache.core.types import Tier
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.device import player_of
from invariants.fuzz.hicache.draw import sample_config
from invariants.fuzz.hicache.player import Player
from invariants.fuzz.hicache.ranks import RankedPlayer
from invariants.fuzz.play import Failure
from invariants.fuzz.sequence import Act, Entry, FuzzSequence, dumps, loads
from invariants.fuzz.shrink import WAYS, Search

CONFIG = Config(4, (16,), (12,))


def entry(op: str, acts: tuple[Act, ...] = (), gap: int = 1, **args: Any) -> Entry:
    return Entry(op, args, gap, True, acts)


def one_prompt(*acts: Act, ranks: int = 2, then: tuple[Entry, ...] = ()) -> FuzzSequence:
    """A prompt of two pages; its pass, and then its backup, have these acts."""
    arrive = entry("arrive", request=0, tokens=[[1, 8]], space="", whole=False)
    admit = entry("admit", acts, request=0, chunk=8)
    return FuzzSequence(CONFIG, (arrive, admit, *then), ranks=ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_without_a_bug_decide_the_same(ranks: int) -> None:
    for seed in range(2):
        outcome = play.generate(sample_config(seed, ranks=ranks), 60)
        assert outcome.failure is None, outcome.failure.text
        again = play.replay(loads(dumps(outcome.sequence)))
        assert again.failure is None
        assert again.player.events == outcome.player.events
        assert again.player.probes.seen == outcome.player.probes.seen


# -- what an entry's acts say of ranks


def answered(sequence: FuzzSequence, polls: int) -> list[int]:
    """By time, how many replies have been taken, entry by entry and then tick by tick."""
    player = player_of(sequence)
    for entry in sequence.entries:
        play.step(player, entry)
    result = []
    for _ in range(polls):
        result.append(len(player.pending))
        player.begin(1, True, ())
    return result


def test_each_rank_uses_the_next_act() -> None:
    late, soon = Act(6, 0), Act(1, 0)
    assert answered(one_prompt(soon, ranks=1), 3)[0] == 1
    for acts, ranks, until in (
        ((soon,), 3, 1),
        ((soon, late), 2, 6),
        ((late, soon), 2, 6),
        ((soon, soon, late), 2, 1),
        ((soon, soon, late), 3, 6),
    ):
        assert answered(one_prompt(*acts, ranks=ranks), 8).index(0) <= until + 1
        assert answered(one_prompt(*acts, ranks=ranks), until) == [1] * until


FAILS, FINE = Act(1, 0, "fail"), Act(1, 0)


@pytest.mark.parametrize(
    ("acts", "restarts", "number"),
    [((FAILS, FINE), 1, 1), ((FINE, FAILS), 1, 1), ((FAILS,), 1, 0), ((FINE,), 0, 0)],
)
def test_a_transfer_that_failed_on_one_rank_failed_on_all(
    acts: tuple[Act, ...], restarts: int, number: int
) -> None:
    outcome = play.replay(one_prompt(*acts))
    assert outcome.failure is None
    seen = outcome.player.probes.seen
    assert seen["restarted by PrefillDone"] == restarts
    assert seen["PrefillDone: failed on one rank"] == number


def test_a_pass_taken_at_once_takes_earlier_replies_on_every_rank() -> None:
    """The ballast takes its own pass while another one is slow on the second rank."""
    hold = entry("hoard", (Act(1, 0),), take=True)
    outcome = play.replay(one_prompt(Act(1, 0), Act(900, 0), then=(hold,)))
    assert outcome.failure is None


# -- what is compared


def test_an_event_is_fed_to_all_ranks_or_to_none() -> None:
    player = RankedPlayer(FuzzSequence(CONFIG, (), ranks=3))
    player.feed(EvictWanted(Tier.DEVICE, "full", 1))
    player.refused(LoadDone(5))
    assert len(player.drivers) == 2


# -- sequences, shrinking, export


def test_a_sequence_shrinks_to_the_fewest_ranks_that_fail() -> None:
    sequence = one_prompt(Act(1, 0), Act(5, 0), Act(9, 0), ranks=3)
    assert WAYS.weight(replace(sequence, ranks=2)) < WAYS.weight(sequence)

    def fails(with_ranks: int) -> Any:
        def fake(sequence: FuzzSequence) -> Any:
            failure = Failure(15, "COLL-SEQ", "", len(sequence.entries))
            player = Player(sequence.config)
            return play.Played(sequence, failure if sequence.ranks >= with_ranks else None, player)

        return fake

    for least in (1, 2, 3):
        failure = Failure(15, "COLL-SEQ", "", 2)
        result = Search(sequence, failure, fails(least), WAYS, 300).run()
        assert result.sequence.ranks == least
