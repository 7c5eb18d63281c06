"""The definitions of a hit rate, on numbers small enough to check by hand."""

from __future__ import annotations

from traces.replaying.account import ceiling_of

from .rig import HEADER, mooncake, native, read


def test_an_engine_computes_the_last_token() -> None:
    paged = read(mooncake([1]), mooncake([1]), mooncake([1, 2], 513)).paged(64)
    assert ceiling_of(paged, whole_prompts=True).tolist() == [0, 512, 512]
    assert ceiling_of(paged, whole_prompts=False).tolist() == [0, 448, 512]


def test_a_known_answer_can_be_hit_except_its_last_token() -> None:
    first = native(("q", 64), output=("a", 64))
    again = native(("q", 64), ("a", 64), ("r", 1), output=("b", 1), after=0)
    for tokens, ceiling in ((64, 64), (65, 128)):
        first["output"][1] = tokens
        paged = read(HEADER, first, again).paged(64)
        assert ceiling_of(paged, whole_prompts=True).tolist() == [0, ceiling]
