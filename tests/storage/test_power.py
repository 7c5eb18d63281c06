"""A power failure after every step of the file backend's protocol, and all that may be left.

`python -m tests.storage.test_power` prints how many states it judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from random import Random

import pytest

from hicache.storage.base import Status
from hicache.storage.verified import Verified
from tests.storage.medium import Crash, Medium

SLOTS = 3
SECTORS = (512, 1024, 2048, 4096)
SIZE = 1200  # with the header three sectors of 512 bytes
KEYS = "abcdef"
# What is written and deleted, one batch after the other: new pages, two at a time, a page again,
# and more than there is room for.
STORY = ("+a", "+bc", "+b", "-c", "+de", "+a", "+fa", "-a", "+c")


def page_of(name: str, version: int) -> bytes:
    return (f"{name}{version:03}".encode() * SIZE)[:SIZE]


def key_of(name: str) -> str:
    return f"c/kv/0of1/{name}"


def versions(store: Verified) -> dict[str, bytes]:
    """Every page that the store serves."""
    into = {name: memoryview(bytearray(SIZE)) for name in KEYS}
    found = store.read([key_of(name) for name in KEYS], [(page,) for page in into.values()])
    return {
        name: bytes(into[name])
        for name, status in zip(KEYS, found, strict=True)
        if status is Status.DONE
    }


def do(store: Verified, step: str, number: int) -> None:
    keys = [key_of(name) for name in step[1:]]
    if step[0] == "+":
        values = [(memoryview(page_of(name, number)),) for name in step[1:]]
        assert store.write(keys, values) == [Status.DONE] * len(keys)
    else:
        store.delete(keys)


@dataclass(frozen=True)
class Setting:
    """durable: every `DONE` is synced. bounded: to three values. most: subsets of sectors that are
    all tried."""

    sector_bytes: int
    durable: bool
    bounded: bool
    most: int

    @property
    def size_bytes(self) -> int:
        return SLOTS * 4096 if self.bounded else 0


def judge(crash: Crash, setting: Setting, sure: list[str], known: set[bytes], at: str) -> int:
    """Open everything that the crash may leave: what is served was written, and what is sure to be
    there is served. Then the store must work."""
    count = 0
    for left, commit in crash.outcomes(Random(at), setting.most):
        after = Medium(setting.sector_bytes, setting.durable, lambda _: None)
        after.files = left
        after.safe = {segment: bytes(found) for segment, found in left.items()}
        store = Verified(after.open(setting.size_bytes, commit))
        served = versions(store)
        assert set(served.values()) <= known, f"{at}, {crash.step}: wrong bytes"
        lost = [name for name in sure if name not in served]
        assert not lost, f"{at}, {crash.step}: {lost} was promised"
        do(store, "+ab", 900)
        assert versions(store).items() >= {name: page_of(name, 900) for name in "ab"}.items()
        count += 1
    return count


def play(setting: Setting) -> int:
    """The story, with a failure after every step; how many states were judged."""
    crashes: list[Crash] = []
    medium = Medium(setting.sector_bytes, setting.durable, crashes.append)
    store = Verified(medium.open(setting.size_bytes))
    known: set[bytes] = set()
    count = 0
    before: dict[str, bytes] = {}
    for number, step in enumerate(STORY):
        crashes.clear()
        known |= {page_of(name, number) for name in step[1:] if step[0] == "+"}
        do(store, step, number)
        during = list(crashes)
        after = versions(store)
        # What this step does not touch is sure to be there. So is a page that it writes again, old
        # or new; but where room is short, the old one may be evicted for the new one.
        sure = [name for name, page in before.items() if after.get(name) == page]
        if not setting.bounded:
            assert sorted(before) == sorted(set(before) & {*after, *step[1:]})
            sure = [name for name in before if name in after]
        for crash in during:
            count += judge(
                crash, setting, sure if setting.durable else [], known, f"{number} {step}"
            )
        if setting.durable:
            medium.step("done")
            count += judge(crashes[-1], setting, list(after), known, f"after {number} {step}")
        before = after
    store.close()
    return count


@pytest.mark.one_in(64)
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(("durable", "sector_bytes"), [(True, 512), (False, 4096)])
def test_a_power_failure_after_any_step(durable: bool, sector_bytes: int, bounded: bool) -> None:
    assert play(Setting(sector_bytes, durable, bounded, most=8)) > 40


def main() -> None:
    for durable, bounded, sector_bytes in product((True, False), (True, False), SECTORS):
        count = play(Setting(sector_bytes, durable, bounded, most=256))
        print(f"durable {durable}, bounded {bounded}, sectors of {sector_bytes}: {count} states")


if __name__ == "__main__":
    main()
