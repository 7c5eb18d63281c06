"""Drawn calls of PrefixCache: whatever was changed, stored, lost or killed before, the logits are
those of the model as it is now.

    python -m tests.transformers.drawing --calls 500000 --seed 1

Prints what was drawn and found. A failure names the seed of its process, which draws it again.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import torch

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.transformers import PrefixCache, Stats, UnsupportedModelError
from hicache.transformers.ongoing import PAUSE_S
from tests.patience import PATIENCE_S

from .emptying import Streamer, empty_device
from .worlds import World

SIZES = {"page_size": 4, "interval_tokens": 8, "device_tokens": 128, "host_tokens": 256}
FAMILIES = (("llama", torch.float32), ("llama", torch.bfloat16), ("gemma3", torch.float32))
APART = {torch.float32: 1e-3, torch.bfloat16: 0.15}  # in standard deviations of the logits
_COLD = 4096  # references that are remembered
_BLOCK = 512  # bytes, of which one is spoilt
# of modules, so they are seen in the middle of a call; others are told at its beginning alone
_SETTINGS = ("adapter", "rescaled", "scaling", "eps", "activation", "hook")


class Wrong(Exception):
    """The logits of a call are not those of the model as it is."""


class Play:
    """Two equal models and their caches on one folder. seen: what was drawn, and the hits."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seen: Counter[str] = Counter()
        self._draws, self._folder = Random(seed), folder
        family, dtype = self._draws.choice(FAMILIES)
        self._dtype = dtype
        self._worlds = [World(family, dtype, self._draws) for _ in range(2)]
        self._caches: list[PrefixCache | None] = [None, None]
        self._told: tuple[Stats, dict[str, Any]] | None = None
        self._cold: dict[Any, torch.Tensor] = {}
        whole = [self._draws.randrange(3, 97) for _ in range(24)]
        whole[1], whole[6] = 9, 10
        lengths = (3, 5, 9, 13, 17, 21, 24)
        self._prompts = [torch.tensor([whole[:length]]) for length in lengths]
        self._prompts.append(torch.tensor([[*whole[:12], 9, 9, *whole[:5]]]))

    def call(self) -> None:
        """Change something or nothing, and compare one call."""
        at = self._draws.randrange(2)
        chance = self._draws.random()
        if chance < 0.10:
            self._change(self._worlds[at])
        elif chance < 0.13:
            self._disturb(at)
        elif chance < 0.15:
            self._change_inside(at)
        world, number = self._worlds[at], self._draws.randrange(len(self._prompts))
        prompt = self._prompts[number]
        cache = self._caches[at] or self._open(at)  # opening may change what the types are
        with world.types():
            wanted = self._reference(world, number, prompt)
            try:
                found = cache.generate(
                    prompt,
                    max_new_tokens=1,
                    do_sample=False,
                    return_dict_in_generate=True,
                    output_logits=True,
                ).logits[0][0]
            except UnsupportedModelError:
                if world.served:
                    raise
                self.seen["refused"] += 1
                return
        apart = (found.float() - wanted).abs().max() / wanted.std()
        # with "medium" some processors multiply in half precision
        half = world.autocast is not None or bool(world.state["precision"])
        rough = torch.bfloat16 if half else self._dtype
        if not bool(apart < APART[rough]):
            raise Wrong(f"prompt {number}, {float(apart):.2g} apart, state {world.state}")
        if chance > 0.95:
            self.seen["rest"] += 1
            rest(cache)
            self._look(cache)

    def close(self) -> None:
        for at, cache in enumerate(self._caches):
            if cache is not None:
                self._count(cache)
                cache.close()
            self._caches[at] = None

    def _reference(self, world: World, number: int, prompt: torch.Tensor) -> torch.Tensor:
        """The logits of the model without a cache, once for each state."""
        key = (number, *world.state.values())
        if key not in self._cold:
            if len(self._cold) == _COLD:
                del self._cold[next(iter(self._cold))]
            with torch.inference_mode():
                found = world.model(prompt, use_cache=False).logits[0, -1].float()
            if world.state["train"]:
                return found
            self._cold[key] = found
        return self._cold[key]

    def _change(self, world: World) -> None:
        """Back to what it was, or one property more that is not."""
        changed = [name for name, value in world.state.items() if value]
        if changed and self._draws.random() < 0.5 + 0.2 * len(changed):
            for name in changed:
                world.put(name, 0)
                self.seen["changed back"] += 1
            return
        name = self._draws.choice(list(world.properties))
        world.put(name, self._draws.randrange(1, world.properties[name].values))
        self.seen[f"changed {name}"] += 1

    def _change_inside(self, at: int) -> None:
        """Change a setting in the middle of a call, and back: what it computed is not kept."""
        world, cache = self._worlds[at], self._caches[at]
        if cache is None or not world.served:
            return
        name = self._draws.choice(_SETTINGS)
        before, value = world.state[name], self._draws.randrange(world.properties[name].values)
        at_call = 1 + self._draws.randrange(2)
        streamer = Streamer(lambda call: world.put(name, value) if call == at_call else None)
        with world.types():
            cache.generate(self._draws.choice(self._prompts), max_new_tokens=1, streamer=streamer)
        world.put(name, before)
        self.seen["changed inside"] += 1

    def _look(self, cache: PrefixCache) -> None:
        """Figures that were told stay as they were, whatever happens to their cache."""
        if self._told is not None and self._told[0].as_dict() != self._told[1]:
            raise Wrong(f"told figures have changed since:\n{self._told[0]}")
        stats = cache.stats
        self._told = stats, stats.as_dict()

    # -- caches and stores

    def _open(self, at: int) -> PrefixCache:
        """A cache on the folder. A model that is not served is put back; a folder that is spoilt is
        made anew."""
        world = self._worlds[at]
        if not world.served:
            for name in world.state:
                world.put(name, 0)
        given = {
            "storage": f"file:{self._folder}" if self._draws.random() < 0.95 else None,
            "storage_bytes": self._draws.choice((0, 0, 300_000)),
            "wait_s": 0.2,
        }
        try:
            with world.types():
                made = PrefixCache(world.model, **SIZES, **given)
        except CallerError as error:
            if isinstance(error, UnsupportedModelError):
                raise
            self.seen["store could not be opened"] += 1
            self.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            with world.types():
                made = PrefixCache(world.model, **SIZES, **given)
        self._caches[at] = made
        self.seen["opened"] += 1
        return made

    def _disturb(self, at: int) -> None:
        what = self._draws.choice(
            ("close", "close", "drop", "spoil", "spoil", "kill", "clear", "device")
        )
        cache = self._caches[at]
        if cache is None:
            return
        self.seen[what] += 1
        if what == "close":
            self._count(cache)
            cache.close()
        elif what == "drop":
            self._count(cache)
        elif what == "spoil":
            cache.flush(1.0)
            self.seen["blocks spoilt"] += spoil(self._folder, self._draws)
            cache.clear()
        elif what == "kill":
            with cache._turn():
                store = cache._ongoing._attachment.store
                if store is not None:
                    store.close()
        elif what == "clear":
            cache.clear(storage=self._draws.random() < 0.5)
        elif cache.flush(1.0) and not self._draws.randrange(4):
            empty_device(cache)
        if what in ("close", "drop"):
            self._caches[at] = None
        del cache

    def _count(self, cache: PrefixCache) -> None:
        for tier, tokens in cache._stats.hits.items():
            self.seen[f"tokens from {tier}"] += tokens
        self.seen["unkept"] += cache._stats.unkept
        self.seen["values found corrupt"] += cache._ongoing.losses.reads_corrupt


def rest(cache: PrefixCache) -> None:
    """Raises Wrong unless a cache comes to rest without a call, with figures that agree."""
    for _ in range(int(PATIENCE_S / PAUSE_S)):
        if not cache._ongoing.busy:
            break
        cache._ongoing.clock.sleep(PAUSE_S)
    else:
        raise Wrong("copies or stores are under way, and nobody carries them on")
    cache.flush()
    done, stats = cache.flush(), cache.stats
    if done == bool(stats.unstored_tokens):
        raise Wrong(f"flush returns {done} with {stats.unstored_tokens} tokens unstored")
    if stats.prompt_tokens != stats.computed_tokens + stats.saved_tokens:
        raise Wrong(f"prompt tokens are neither computed nor saved:\n{stats}")
    view, arena = cache._ongoing.driver.core.view, cache._engine._device.arena
    for tier, name in ((Tier.DEVICE, "device"), (Tier.HOST, "host")):
        found = sum(
            len(pages) * pool.plan.page_bytes
            for node in view.nodes()
            for component, pages in zip(view.config.components, node.pages[tier], strict=True)
            for pool in arena.pools(tier, component)
            if pages is not None
        )
        if stats.bytes[name] != found:
            raise Wrong(f"{name}: {stats.bytes[name]} bytes in use, of pages with {found}")


def spoil(folder: Path, draws: Random) -> int:
    """Change a byte in some of the blocks that a store of files has. Returns in how many."""
    share, done = draws.choice((0.02, 0.3)), 0
    for path in sorted(folder.rglob("*.slots")):
        try:
            stored = bytearray(path.read_bytes())
        except FileNotFoundError:  # the store has just given this segment up
            continue
        for start in range(0, len(stored), _BLOCK):
            if any(stored[start : start + _BLOCK]) and draws.random() < share:
                stored[min(start + draws.randrange(_BLOCK), len(stored) - 1)] ^= 1 << 6
                done += 1
        with suppress(FileNotFoundError), path.open("r+b") as file:
            file.write(stored)
    return done


def played(seed: int, calls: int, folder: Path, dies: bool, told: int) -> None:
    """Play in this process, and tell a pipe after each 50 calls. dies: it kills itself in the
    middle of a call near the end."""
    play, draws = Play(seed, folder), Random(-seed - 1)
    last = calls - draws.randrange(50) if dies else -1
    for number in range(calls):
        if number == last:
            threading.Timer(draws.random() * 0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()
        try:
            play.call()
        except BaseException as error:
            line = {"failed": f"seed {seed}, call {number}: {type(error).__name__}: {error}"}
            os.write(told, json.dumps(line).encode() + b"\n")
            raise
        if number % 50 == 49:
            if number + 50 >= calls:
                for cache in play._caches:
                    if cache is not None:
                        play._count(cache)
            os.write(told, json.dumps({"calls": 50, **play.seen}).encode() + b"\n")
            play.seen.clear()
        if number % 1000 == 999:
            gc.collect()
    if not dies:
        play.close()


def in_child(seed: int, calls: int, folder: Path, dies: bool) -> tuple[Counter[str], list[str]]:
    """The counts of a process that plays, and its failures."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        try:
            played(seed, calls, folder, dies, theirs)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(0)
    os.close(theirs)
    counts: Counter[str] = Counter()
    failures = []
    with os.fdopen(ours, "rb") as lines:
        for line in lines:
            told = json.loads(line)
            failures += [told.pop("failed")] if "failed" in told else []
            counts.update(told)
    _, status = os.waitpid(child, 0)
    counts["killed"] += os.WIFSIGNALED(status)
    return counts, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Drawn calls of PrefixCache.")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=2000, help="calls of a process")
    given = parser.parse_args()
    torch.set_num_threads(1)
    seen: Counter[str] = Counter()
    failures: list[str] = []
    draws = Random(given.seed)
    with tempfile.TemporaryDirectory() as scratch:
        seed, folder = given.seed * 1_000_000, Path(scratch) / "kv"
        while seen["calls"] < given.calls and not failures:
            if not draws.randrange(5):
                shutil.rmtree(folder, ignore_errors=True)
            counts, failures = in_child(seed, given.each, folder, bool(draws.randrange(2)))
            seen.update(counts)
            seed += 1
            print(f"{seen['calls']:,} calls, {len(failures)} wrong", flush=True)
    for name, count in sorted(seen.items()):
        print(f"{name:<28}{count:>12,}")
    for one in failures:
        print(one)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
