"""Flush, events for routers, keys, what is kept in memory, and the caller's mistakes."""

from __future__ import annotations

import pytest

from hicache.core.actions import Backup, KvRemoved, KvStored, Refused
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import (
    Arrived,
    BackupDone,
    EvictWanted,
    Finished,
    Flushed,
    PrefillDone,
)
from hicache.core.types import Key, PageState, Tier

from .rig import PAGE, Rig, key, tokens

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def test_flush_removes_everything_except_pages_in_flight() -> None:
    rig = Rig(device=8, host=8)
    _, prefill = rig.begin(0, "abcd")
    backup = rig.one(Backup, rig.feed(PrefillDone(prefill.flight)))
    assert rig.one(Refused, rig.feed(Flushed())).reason == "running"
    rig.finish(0)
    rig.feed(Flushed())
    assert rig.residency() == {}
    assert rig.device.counts[RETIRING] == 4
    assert rig.host.counts[LENT] == 4
    rig.feed(BackupDone(backup.flight))
    assert rig.residency() == {}
    assert rig.device.free == rig.host.free == 8
    assert rig.run(1, "abcd").device_pages == 0


def test_kv_events_mirror_both_tiers() -> None:
    rig = Rig(device=4, host=8, kv_events=True)
    rig.run(0, "abcd")
    rig.run(1, "abwxyz"[:4])
    there: dict[tuple[Tier, bytes], None] = {}
    for outcome in rig.log:
        if isinstance(outcome, KvStored):
            there.update(dict.fromkeys((outcome.tier, digest) for digest in outcome.digests))
        elif isinstance(outcome, KvRemoved):
            for digest in outcome.digests:
                del there[outcome.tier, digest]
    old, new = key("abcd").page_digests(), key("abwx").page_digests()
    assert set(there) == {(Tier.HOST, d) for d in old + new} | {(Tier.DEVICE, d) for d in new}


def test_contract_violations_are_refused_before_anything_changes() -> None:
    rig = Rig()
    _, prefill = rig.begin(0, "abcd", chunk=8)
    rig.feed(PrefillDone(prefill.flight))
    other = Key.from_tokens(range(32), 8)
    for event, message in (
        (Finished(0, key("abcd"), 16), "at most the 8 tokens"),
        (Finished(0, Key(other.raw[:64], 64), 8), "no longer starts with|expected 2 to"),
        (EvictWanted(Tier.STORAGE, "full", 1), "on device or host"),
        (Arrived(5, Key(b"", 0), 4, 0), "8-byte words"),
        (Arrived(5, Key(b"abcd", 4), 4, 1), "8-byte words"),
        (Arrived(5, key("a")._replace(namespace="\ud800"), 4, 1), "UTF-8"),
    ):
        with pytest.raises(CallerError, match=message):
            rig.feed(event)
    assert 5 not in rig.view.requests
    with pytest.raises(CallerError, match="each once"):
        Config(4, (4, 4), (0, 0), components=("full", "full"))


def test_bigram_keys_are_one_position_shorter() -> None:
    assert Key.from_tokens(tokens("ab"), PAGE, bigram=True).pages == 1
    assert Key.from_tokens(tokens("ab")[:1], PAGE, bigram=True).pages == 0
    one = Key.from_tokens([1, 2, 3, 4, 5], PAGE, bigram=True)
    other = Key.from_tokens([1, 2, 3, 4, 6], PAGE, bigram=True)
    assert one.raw != other.raw, "the last pair reaches into the next page"
