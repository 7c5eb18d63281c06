"""A host tier costs no device hit: tapes beside a core without a host, and the bytes of views."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache.core.config import Config
from invariants.base import check_names
from invariants.checks.bounds import kept_bytes, owner_of
from invariants.fuzz import hosted
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay, step
from invariants.fuzz.tapes.tape import Act, Entry, Tape
from invariants.planted._kill import hunt
from invariants.planted.base import planted
from tests.configs import configured

CONFIG = Config(1, (8,), (16,))


def test_the_rule_is_of_full_attention_with_a_host_by_recency() -> None:
    assert hosted.applies(Tape(CONFIG, ()))
    assert hosted.applies(Tape(replace(CONFIG, eviction_policy="lru_path"), ()))
    assert not hosted.applies(Tape(replace(CONFIG, host_pages=(0,)), ()))
    for order in ("slru", "lfu", "fifo", "priority"):
        assert not hosted.applies(Tape(replace(CONFIG, eviction_policy=order), ()))
    assert not hosted.applies(Tape(replace(CONFIG, storage=True), ()))
    assert not hosted.applies(Tape(CONFIG, (Entry("attach", {"again": False}),)))
    several = configured(1, (8, 8), (16, 16), components=("full", "swa"), swa_window=2)
    assert not hosted.applies(Tape(several, ()))


@pytest.mark.one_in(16)
def test_a_bug_that_lets_warmer_pages_go_is_found_and_its_tape_repeats_it() -> None:
    name = "copies-let-warmer-pages-go"
    found = hunt(
        name, [131], checks=check_names()
    )  # the sequence of seed 131 has a host and no storage
    assert found.found == (11, "HOST-TIER")
    assert found.tape is not None
    ops = load()
    assert replay(found.tape, ops).failure is None
    with planted(name):
        again = replay(found.tape, ops, against=False).failure  # as the hunt does
    assert again is not None
    assert again.kind == "HOST-TIER"
    assert "without a host" in again.text


def test_copies_end_while_the_core_with_a_host_writes_back() -> None:
    """Both answer the same, and the copies that evictions wait for end in between."""
    tape = Tape(replace(CONFIG, write_policy="write_back"), (), 1)
    hand, ops = hosted.HostedHand(tape), load()
    for request in range(4):
        tokens = [[request, 6]]
        args = {"request": request, "tokens": tokens, "space": "", "whole": False}
        for op, more in (("arrive", args), ("admit", {"request": request, "chunk": 9})):
            step(hand, ops, Entry(op, more, acts=(Act(50, 0),)))
        step(hand, ops, Entry("wait", {"polls": 1}))
        step(hand, ops, Entry("finish", {"request": request, "ahead": 0}))
        hand.probe()
    assert hand.waits > 2
    assert hand.probed == 1 + 2 + 3 + 4


def test_faults_that_are_events_of_their_own_are_left_out() -> None:
    acts = (Act(1, 0, "fail"), Act(2, 1, "abort before the reply"))
    (entry,) = hosted.calm(Tape(CONFIG, (Entry("wait", {"polls": 1}, acts=acts),))).entries
    assert [act.fault for act in entry.acts] == ["fail", ""]


def test_a_view_counts_with_all_of_the_array_below_it_and_each_array_once() -> None:
    whole = np.arange(100, dtype=np.int64)
    assert owner_of(whole[3:][:2]) is whole
    assert kept_bytes([whole[:1], whole[1:2], whole[50:].copy()]) == 800 + 400
    raw = bytes(80)
    assert kept_bytes([np.frombuffer(raw, dtype=np.int64)[:1]]) == 80
