"""The calls of SGLang's scheduler: locks, publishing, ending."""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache import common
from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams

from invariants.fuzz.script import Recorder, raw


class Calls:
    def __init__(self, recorder: Recorder, cache: Any, rows: Any, allocator: Any) -> None:
        recorder.note("from sglang.srt.mem_cache import common")
        self.common = recorder.wrap("common", common)
        self.cache, self.rows, self.allocator = cache, rows, allocator

    def lock(self, node: Any, host: bool = False) -> Any:
        """Holds a node while a request is admitted, as `_lock_node` does."""
        kept = self.cache.inc_host_lock_ref(node).to_dec_params() if host else None
        return self.cache.lock(node), node, kept

    def unlock(self, held: Any) -> None:
        lock, node, kept = held
        self.cache.unlock(lock)
        if kept is not None:
            self.cache.dec_host_lock_ref(node, kept)

    def keep(self, request: Any) -> None:
        """The request holds its prefix from now on."""
        request.lock = self.cache.lock(request.last_node)

    def forget(self, request: Any) -> None:
        """It does not, since it could not be admitted after all."""
        self.cache.unlock(request.lock)
        request.lock = None

    def prefix(self, request: Any) -> Any:
        """The slots of what hit."""
        return self.cache.prefix_device_indices(request)

    def hit(self, request: Any) -> int:
        return int(raw(request).prefix_len)

    def hits_host(self, request: Any) -> bool:
        return bool(raw(request).needs_host_load_back())

    def wanted(self, request: Any) -> Any:
        """What to load for a request."""
        return InitLoadBackParams(
            best_match_node=request.best_match_node,
            host_hit_length=raw(request).host_hit_length,
            req=request,
        )

    def load(self, request: Any, params: Any) -> int:
        """Begins to load what hit on the host, and returns the tokens."""
        count, request.last_node = self.cache.init_load_back(params)
        if count:
            request.prefix_len = request.kv.cache_protected_len = self.hit(request) + count
        return int(count)

    def extend(self, request: Any, start: int, until: int) -> None:
        request.prefix_len, request.extend_end = start, until

    def publish(self, request: Any) -> None:
        self.common.checkpoint_kv_cache(request, self.cache)

    def release(self, request: Any, keep: bool) -> None:
        self.common.release_kv_cache(request, self.cache, checkpoint=keep)

    def slide(self, request: Any) -> None:
        """Frees what a decoding request's window has left behind."""
        cache, plain = self.cache, raw(self.cache)
        self.allocator.free_group_begin()
        if hasattr(plain, "evict_sliding_windows"):
            cache.evict_sliding_windows(request, raw(request).seqlen - 1)
        else:
            self.common.free_swa_out_of_window_slots(
                request,
                raw(request).seqlen - 1,
                sliding_window_size=plain.sliding_window_size,
                page_size=plain.page_size,
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.allocator,
                retain_floor=plain.swa_retain_floor(raw(request)),
            )
        if raw(request).decode_batch_idx >= plain.sliding_window_size:
            self.leave_window(request)
        self.allocator.free_group_end()

    def leave_window(self, request: Any) -> None:
        """The window has moved past what hit: its window slots need no lock any more."""
        self.cache.release_swa_prefix_lock(request)
