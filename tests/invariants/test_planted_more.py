"""Planted bugs that one check owns: it finds them, and the unplanted code passes the same runs."""

from __future__ import annotations

import pytest

from invariants.base import load_check
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import generate
from invariants.fuzz.swarm import draw_swarm
from invariants.planted import base
from invariants.planted._kill import hunt

SEQUENCES = 40
OWNED = {
    "loaded-pages-reported-one-short": "anchor",
    "chunk-table-is-sorted": "bytes",
    "answered-backups-stay-in-flight": "live-ack",
    "boundaries-ignore-the-last-component": "near",
    "children-on-device-are-miscounted": "leaf-set",
    "host-copy-below-uncopied-parent": "parent-bk",
    "truncated-key-keeps-one-token": "tree-link",
    "demoted-leaf-keeps-its-state-on-device": "device-prefix",
    "donated-slot-stays-with-its-request": "own-d",
    "eviction-visits-the-whole-tree": "work-bound",
    "freed-pages-keep-their-generation": "generation",
    "hits-counted-twice": "metric-ref",
    "host-copies-publish-no-event": "event-mirror",
    "landed-backup-pages-stay-with-the-flight": "own-h",
    "host-windows-are-not-queued": "hlru",
    "lent-pages-counted-as-owned": "pool-sum",
    "loaded-tokens-count-as-computed": "metric-ref",
    "swa-map-omits-split-nodes": "map-swa",
    "passes-do-not-wait-for-their-load": "read-after-arrive",
    "passes-hold-no-loan": "pin-io",
    "unlocked-pages-stay-protected": "pool-sum",
    "truncated-nodes-keep-their-key": "tree-link",
    "root-child-count-is-not-decreased": "leaf-set",
    "split-does-not-update-the-ledger": "own-d",
    "unlocked-windows-are-not-queued": "dlru",
    "windows-stay-on-device-without-backbone": "device-prefix",
    "working-state-not-copied-on-use": "bytes",
    "write-back-leaves-an-empty-node": "dead-node",
    "load-waits-for-a-load-beside": "progress",
    "split-halves-are-views-of-one-array": "rss-bound",
    "stale-queue-entries-are-never-swept": "rss-bound",
}

# First sequence, where an assert of the core notices the bug in an earlier one.
LATER = {"truncated-nodes-keep-their-key": 6}


@pytest.mark.parametrize("name", OWNED)
def test_a_check_finds_its_bug(name: str) -> None:
    found = hunt(name, range(LATER.get(name, 0), SEQUENCES), checks=[OWNED[name]])
    assert found.failure is not None
    assert found.failure.kind == load_check(OWNED[name]).name
    assert OWNED[name] == base.load(name).kills


def test_the_same_runs_pass_without_a_bug() -> None:
    ops = load()
    weights = weights_of(ops)
    failures = [generate(draw_swarm(at, weights), ops, at, 120).failure for at in range(SEQUENCES)]
    assert failures == [None] * SEQUENCES
