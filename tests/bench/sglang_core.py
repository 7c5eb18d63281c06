"""SGLang's Rust tree core, driven with the calls that SGLang's own cache makes for one request.

The extension is part of the wheel of sglang 0.5.23 and loads once torch is imported. SGLANG_CORE
names it, or a folder in which the wheel was unpacked:

    pip download --no-deps -d FOLDER sglang==0.5.23 && unzip -d FOLDER FOLDER/sglang-*.whl

Only the calls of the extension are timed. What SGLang does around them in Python and torch is left
out: building keys, wrapping results, its page allocator and its table of pages by request. So is
here the choice of page numbers. What SGLang calls for a request without a host tier (its files
unified_radix_cache.py and common.py): match_prefix when the queue is ordered and at admission,
then inc_lock_ref; evict_device_* until enough is free; after the prefill and at the end, insert (at
the end also of the prompt alone, which splits the leaf), collect_full_device_indices, and the lock
moves to the new node.
"""

from __future__ import annotations

import importlib.util
import os
from array import array
from collections.abc import Callable
from pathlib import Path
from time import thread_time_ns
from typing import Any

import pytest

VARIABLE = "SGLANG_CORE"
EXTENSION = "rust_tree_core/mem_cache.*.so"
_FULL = 0


def extension() -> Any:
    """The extension module. Skips the test where there is none."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    named = Path(os.environ.get(VARIABLE, "."))
    found = (
        [named] if named.suffix == ".so" else sorted(named.rglob("rust_tree_core/mem_cache.*.so"))
    )
    if VARIABLE not in os.environ or not found:
        pytest.skip(f"{VARIABLE}: expected the folder of an unpacked wheel of sglang 0.5.23")
    torch.set_num_threads(1)  # threads make it slower where other work runs, and it has one core
    spec = importlib.util.spec_from_file_location("mem_cache", found[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class SglangCore:
    """A tree core with a pool of tokens. hits: tokens that prompts found."""

    def __init__(self, tokens: int, page_size: int) -> None:
        self._torch, self._core = pytest.importorskip("torch", exc_type=ImportError), extension()
        settings = self._core.TreeCoreInitParamsBinding(
            eviction_policy="lru", page_size=page_size, device="cpu"
        )
        self._tree = self._core.RustUnifiedTreeCoreBinding(settings, [_FULL])
        self._root = self._tree.root_node_handle()
        self._page = page_size
        self._free = tokens
        self._spent = 0
        self.hits = 0

    def life(self, prompt: Any, everything: Any) -> int:
        """One request from its arrival to its end. prompt, everything: int64[n], the tokens.
        Returns the nanoseconds of CPU time in the extension."""
        page, self._spent = self._page, 0
        ours = len(prompt), len(everything)
        wanted = _words(prompt[: (ours[0] - 1) // page * page])
        first, last = (_words(one[: len(one) // page * page]) for one in (prompt, everything))
        pages = self._torch.arange(len(last))
        had, node, lock = self._timed(lambda: self._admit(wanted))
        taken = self._take(_whole(ours[0], page) - had)
        node, lock = self._timed(lambda: self._insert(first, pages[: len(first)], had, node, lock))
        taken += self._take(_whole(ours[1], page) - _whole(ours[0], page))
        self._timed(lambda: self._finish(first, last, pages, node, lock))
        self._free += taken - (len(last) - had)
        self.hits += had
        return self._spent

    def _timed(self, call: Callable[[], Any]) -> Any:
        start = thread_time_ns()
        result = call()
        self._spent += thread_time_ns() - start
        return result

    def _admit(self, wanted: array[int]) -> tuple[int, int, Any]:
        self._tree.match_prefix(self._core.MatchParamsBinding(key=wanted))
        found = self._tree.match_prefix(self._core.MatchParamsBinding(key=wanted))
        node = found.last_device_node_id
        lock = self._tree.inc_lock_ref(node)
        self._tree.collect_full_device_indices(node, self._root)
        return found.device_prefix_len, node, lock

    def _insert(
        self, key: array[int], pages: Any, before: int, node: int, lock: Any
    ) -> tuple[int, Any]:
        """Inserts a key, of which the request had `before` tokens, and moves its lock there."""
        end = self._put(key, pages, before)
        self._tree.collect_full_device_indices(end, self._root)
        self._unlock(node, lock)
        return end, self._tree.inc_lock_ref(end)

    def _finish(
        self, first: array[int], last: array[int], pages: Any, node: int, lock: Any
    ) -> None:
        end = self._put(last, pages, len(first))
        if 0 < len(first) < len(last):
            self._put(first, pages[: len(first)], len(first))
        self._tree.collect_full_device_indices(end, self._root)
        self._unlock(node, lock)
        self._unlock(end, self._tree.inc_lock_ref(end))

    def _put(self, key: array[int], pages: Any, before: int) -> int:
        wanted = self._core.InsertParamsBinding(
            key=key, value=pages, prev_prefix_len=before, inserted_len=before
        )
        step = self._tree.begin_insert(wanted)
        while step.result is None:
            self._count_freed(step.actions)
            step = self._tree.resume_insert()
        self._count_freed(step.actions)
        self._count_freed(self._tree.end_insert())
        node: int = step.result.last_device_node
        return node

    def _count_freed(self, actions: Any) -> None:
        for action in actions:
            assert action[0].startswith("free_device_kv"), action[0]
            self._free += sum(len(one) for one in action[1])

    def _unlock(self, node: int, lock: Any) -> None:
        held = self._core.DecLockRefParamsBinding(node_id=lock.node_id, skipped_lock_components=[])
        self._tree.dec_lock_ref(node, held)

    def _take(self, count: int) -> int:
        """Takes free tokens and evicts for them. Returns how many."""
        if count > self._free:
            for freed in self._timed(lambda: self._evict(count - self._free)):
                self._free += sum(len(one) for group in freed.values() for one in group)
        assert self._free >= count
        self._free -= count
        return count

    def _evict(self, count: int) -> list[Any]:
        tree, freed, gone = self._tree, [], 0
        tree.evict_device_start(_FULL, count)
        while gone < count:
            step = tree.evict_device_next_node(_FULL, {_FULL: gone})
            results = [step]
            if step.node_id is not None:
                results.append(tree.evict_device_leaf(step.node_id))
            elif not step.made_progress:
                break
            for one in results:
                freed.append(one.new_device_frees)
                gone += sum(one.tracker.values())
        tree.evict_device_end(_FULL)
        return freed


def _whole(tokens: int, page: int) -> int:
    return -(-tokens // page) * page


def _words(tokens: Any) -> array[int]:
    made = array("q")
    made.frombytes(tokens.tobytes())
    return made
