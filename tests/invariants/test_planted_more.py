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
    "a-full-pool-is-called-draining": "live-evict",
    "a-load-is-reported-a-page-short": "anchor",
    "a-load-lands-in-part": "all-or-clamp",
    "a-middle-answer-is-sorted": "bytes",
    "answered-backups-stay-in-flight": "live-ack",
    "boundaries-ignore-the-last-component": "near",
    "children-on-device-are-miscounted": "leaf-set",
    "copies-below-a-parent-without-one": "parent-bk",
    "dead-leaves-stay": "dead-leaf",
    "cut-one-token-too-late": "tree-link",
    "demoted-leaf-leaves-its-state-behind": "device-prefix",
    "donated-slot-stays-with-its-request": "own-d",
    "duplicates-outlive-the-only-copies": "order-ref",
    "eviction-visits-the-whole-tree": "work-bound",
    "evicts-the-whole-request": "evict-min",
    "flush-waits-for-nobody": "reset",
    "freed-pages-keep-their-generation": "generation",
    "growth-grants-a-page-too-few": "no-oom",
    "hit-refreshes-nothing": "lru",
    "hits-counted-twice": "metric-ref",
    "host-copies-are-not-announced": "event-mirror",
    "host-copies-stay-the-flights": "own-h",
    "host-windows-are-not-filed": "hlru",
    "copies-are-begun-a-use-early": "backup-due",
    "inner-nodes-are-not-due": "backup-due",
    "lent-pages-are-booked-as-owned": "pool-sum",
    "loaded-tokens-count-as-computed": "metric-ref",
    "map-names-what-is-gone": "map-swa",
    "matches-do-not-see-host": "match-ref",
    "one-track-is-filled-at-a-time": "leaves",
    "passes-do-not-wait-for-their-load": "read-after-arrive",
    "passes-hold-no-loan": "pin-io",
    "paths-keep-every-state": "path-states",
    "protection-outlives-the-lock": "pool-sum",
    "cut-nodes-keep-their-key": "tree-link",
    "root-forgets-who-left": "leaf-set",
    "split-keeps-the-ledgers-owner": "own-d",
    "the-first-is-to-give-way": "answers",
    "unlocked-windows-are-not-filed": "dlru",
    "windows-outlive-their-backbone": "device-prefix",
    "working-state-not-copied-on-use": "bytes",
    "write-back-strands-what-host-refuses": "dead-node",
}


@pytest.mark.parametrize("name", OWNED)
def test_a_check_finds_its_bug(name: str) -> None:
    found = hunt(name, range(SEQUENCES), checks=[OWNED[name]])
    assert found.failure is not None
    assert found.failure.kind == load_check(OWNED[name]).name
    assert OWNED[name] == base.load(name).KILLS


def test_the_same_runs_pass_without_a_bug() -> None:
    ops = load()
    weights = weights_of(ops)
    failures = [generate(draw_swarm(at, weights), ops, at, 120).failure for at in range(SEQUENCES)]
    assert failures == [None] * SEQUENCES
