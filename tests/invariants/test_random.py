"""Thousands of random operations, every check on: a sound core passes all of them.

For each set of components and each write policy: pages of 1, 4 and 64 tokens, windows from less
than a page to eight, tiny pools. The long form prints a table and takes minutes:

    python -m tests.invariants.test_random --operations 20000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from hicache.core.actions import Backup, Load, Seated
from hicache.core.events import BackupDone, LoadDone, PrefillDone
from invariants.determinism import Nondeterminism, Trail, python, run_twice
from invariants.watch import AUDIT_EVERY, Watch

from .corners import COMPONENTS, LONGEST, POLICIES, config_of
from .rig import Rig

STEPS = 600
SEEDS = range(0, 161, 7)
SETS = [pytest.param(names, id="-".join(names)) for names in COMPONENTS]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("names", SETS)
def test_a_sound_core_passes_every_check(names: tuple[str, ...], policy: str) -> None:
    matches = 0
    for seed in SEEDS:
        rig = checked(seed + POLICIES.index(policy), names, policy, STEPS // 2)
        summary = rig.watch.summary()
        assert summary["incremental"] == len(rig.tape)
        assert int(summary["full"]) >= len(rig.tape) // AUDIT_EVERY
        assert summary["violations"] == 0
        matches += rig.score.counts["matches"]
    assert matches > 20 * len(SEEDS)


def test_the_seeds_visit_every_corner() -> None:
    for shift in range(len(POLICIES)):
        found = [config_of(seed + shift, ("full", "swa")) for seed in SEEDS]
        assert {one.page_size for one in found} == {1, 4, 64}
        pages = {one.swa_window / one.page_size for one in found}
        assert {1.0, 8.0} <= pages
        assert any(window % 1 for window in pages), "no multiple of a page"
        assert any(window < 1 for window in pages), "a page larger than the window"


def checked(seed: int, names: tuple[str, ...], policy: str, steps: int) -> Rig:
    """A life of one core, until nothing is left of it, with every check and both oracles."""
    rig = Rig(config_of(seed, names, policy), seed=seed, longest=LONGEST, oracle=True, reuse=70)
    rig.run(steps)
    rig.drain(empty=True)
    return rig


def test_the_random_caller_reaches_the_states_that_matter() -> None:
    seen: dict[str, int] = {}

    def count(name: str) -> None:
        seen[name] = seen.get(name, 0) + 1

    for seed in range(54):
        names = COMPONENTS[seed % len(COMPONENTS)]
        rig = Rig(
            config_of(seed, names),
            seed=seed,
            level="off",
            fail_percent=12,
            longest=LONGEST,
            reuse=70,
        )
        feed = rig.feed

        def spy(event: object, feed: object = feed) -> list[object]:
            outcomes = feed(event)  # type: ignore[operator]
            for item in outcomes:
                count(type(item).__name__)
                if hasattr(item, "reason"):
                    count(item.reason)
                    count(f"{item.reason} of {item.component}")
                if isinstance(item, Load | Backup) and len(item.copies) > 1:
                    count(f"{type(item).__name__} of several nodes")
                if getattr(item, "demoted", False):
                    count(f"demoted {item.component}")
                if isinstance(item, Load) and item.copies[0].component != "full":
                    count("Load of aux alone")
                if isinstance(item, Seated) and item.matched > item.device_pages + item.host_pages:
                    count("a hit that aux capped")
            if isinstance(event, LoadDone | BackupDone | PrefillDone) and not event.ok:
                count(f"failed {type(event).__name__}")
            return outcomes  # type: ignore[no-any-return]

        rig.feed = spy  # type: ignore[method-assign, assignment]
        rig.run(STEPS)
    wanted = {
        "Seated", "Load", "Backup", "Evicted", "demoted full", "demoted swa",
        "Restarted", "Granted", "KvRemoved",
        "no_pages", "draining", "arriving", "too_large", "failed LoadDone", "failed BackupDone",
        "failed PrefillDone", "Load of several nodes", "Backup of several nodes",
        "demoted mamba", "Load of aux alone", "a hit that aux capped", "no_pages of swa",
        "no_pages of mamba",
    }  # fmt: skip
    assert wanted <= seen.keys(), sorted(wanted - seen.keys())


@pytest.mark.parametrize("level", ["sampled", "off"])
def test_cheaper_levels_run_the_same_and_say_what_they_did(level: str) -> None:
    rig = Rig(config_of(4), seed=4, level=level, longest=LONGEST)  # type: ignore[arg-type]
    rig.run(STEPS)
    rig.drain()
    summary = rig.watch.summary()
    assert summary["level"] == level
    assert summary["incremental"] == 0
    assert bool(summary["full"]) == (level == "sampled")


def test_sampled_sees_a_leak() -> None:
    rig = Rig(config_of(4), seed=4, level="sampled", longest=LONGEST)
    rig.run(100)
    rig.core._state.pools[0][0].take(1, 7)
    with pytest.raises(AssertionError, match="POOL-SUM"):
        rig.watch.audit(rig.core.view)


def test_two_processes_leave_the_same_trail() -> None:
    code = (
        "from tests.invariants.test_random import leave_trail\n"
        "print(*leave_trail(seed=5), sep='\\n')"
    )
    assert len(run_twice(python(code))) > 1


def test_a_trail_that_depends_on_the_hash_seed_is_named() -> None:
    code = "print(*[1, 2, hash('a')], sep='\\n')"
    with pytest.raises(Nondeterminism, match=r"events 513\.\.768") as found:
        run_twice(python(code))
    assert found.value.exit_code == 16


def leave_trail(seed: int) -> list[str]:
    rig, trail = Rig(config_of(seed), seed=seed, longest=LONGEST), Trail()
    rig.watch = _Both(rig.watch, trail)  # type: ignore[assignment]
    rig.run(1000)
    return trail.end()


class _Both:
    """Two observers in one place."""

    def __init__(self, watch: Watch, trail: Trail) -> None:
        self._all = (watch, trail)

    def on_event(self, *args: object) -> None:
        for one in self._all:
            one.on_event(*args)  # type: ignore[arg-type]

    def on_outcomes(self, *args: object) -> None:
        for one in self._all:
            one.on_outcomes(*args)  # type: ignore[arg-type]


# -- the long form


def long_run(names: tuple[str, ...], policy: str, operations: int, level: str) -> dict[str, int]:
    """Seeded lives of 1,000 steps until `operations` events were handled."""
    total: dict[str, int] = {"operations": 0, "violations": 0, "seeds": 0}
    for seed in range(1_000_000):
        if total["operations"] >= operations:
            break
        rig = Rig(
            config_of(7 * seed, names, policy),
            seed=seed,
            level=level,  # type: ignore[arg-type]
            longest=LONGEST,
            oracle=True,
            reuse=70,
        )
        total["seeds"] += 1
        try:
            rig.run(1_000)
            rig.drain(empty=True)
        except Exception as found:
            total["violations"] += 1
            text = str(found).strip() or type(found).__name__
            print(f"  {'+'.join(names)} {policy} seed {7 * seed}: {text.splitlines()[0]}")
        total["operations"] += len(rig.tape)
        if rig.content is not None:
            rig.score.counts["revived"] = rig.content.revived
            rig.score.counts["reads"] = rig.content.reads
        for name, count in rig.score.counts.items():
            total[name] = total.get(name, 0) + count
    return total


COLUMNS = {
    "operations": "operations",
    "violations": "violations",
    "matches": "matches compared",
    "seated": "seated",
    "loads": "loads",
    "loads of aux alone": "aux only",
    "backups": "backups",
    "evicted": "pages evicted",
    "revived": "tombstones healed",
    "reads": "reads compared",
}


def table(operations: int, level: str) -> Iterator[str]:
    """A row per set of components and write policy; the caller prints them as they come."""
    yield " | ".join(["components", "policy", *COLUMNS.values()])
    yield "|".join(["---"] * (len(COLUMNS) + 2))
    for names in COMPONENTS:
        for policy in POLICIES:
            total = long_run(names, policy, operations, level)
            cells = [f"{total.get(name, 0):,}" for name in COLUMNS]
            yield " | ".join(["+".join(names), policy, *cells])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random operations on every configuration.")
    parser.add_argument("--operations", type=int, default=20_000, help="for each row of the table")
    parser.add_argument("--check", default="every", choices=["every", "sampled", "off"])
    options = parser.parse_args(arguments)
    bad = 0
    for line in table(options.operations, options.check):
        print(line, flush=True)
        cells = line.split(" | ")
        bad += int(cells[3]) if len(cells) > 3 and cells[3].isdigit() else 0
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
