"""`PrefixCache`: prompts of a model that begin alike are computed once.

    cache = PrefixCache(model, storage="file:~/.cache/kv")
    out = cache.generate(input_ids, max_new_tokens=64)

docs/transformers.md says what is stored, and what it brings.
"""

from __future__ import annotations

import atexit
import copy
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch

from .arguments import prompt_of
from .building import Sizes, build
from .engine import Admission, Engine, LoadFailed
from .errors import ClosedError, UnsupportedModelError
from .live import followed
from .stats import Stats

_CLOSE_S = 30.0
_open: set[Engine] = set()


class PrefixCache:
    """A cache in front of one model. Several threads may use it, one call at a time.

    device_tokens    tokens whose rows are kept where the model is.
    host_tokens      tokens that host memory has room for; 0 for no host memory.
    storage          address of a store that outlives the process, such as file:DIR; None for none.
    storage_bytes    the most that the store may use; 0 for as much as there is.
    page_size        tokens of a page: what is shared is a whole number of pages.
    interval_tokens  tokens between two stored states of a model that has states.
    draft            the assistant model of assisted generation.
    revision         kept apart on disk, beside the weights and the configuration.
    wait_s           the longest that a request waits for storage before it computes.

    Raises UnsupportedModelError, and CallerError for sizes and addresses that cannot be used.
    """

    def __init__(
        self,
        model: Any,
        *,
        device_tokens: int = 8192,
        host_tokens: int = 65536,
        storage: str | None = None,
        storage_bytes: int = 0,
        page_size: int = 16,
        interval_tokens: int = 256,
        draft: Any = None,
        revision: str = "",
        wait_s: float = 5.0,
    ) -> None:
        if getattr(model, "training", False):
            raise UnsupportedModelError(
                f"model {type(model).__name__}: expected one in eval mode, found training mode; "
                "call model.eval()"
            )
        sizes = Sizes(device_tokens, host_tokens, page_size, interval_tokens)
        parts = build(model, draft, sizes, storage, storage_bytes, revision)
        self.model, self.draft = model, draft
        self._engine = Engine(parts, model.device, wait_s)
        self._stats = Stats()
        self._owner = 0
        _open.add(self._engine)
        weakref.finalize(self, _collected, self._engine).atexit = False

    def generate(self, inputs: Any = None, **kwargs: Any) -> Any:
        """What `model.generate` returns for the same arguments. Raises UnsupportedArgumentError for
        those that a cache cannot serve."""
        kwargs = dict(kwargs)
        ids = prompt_of(self.model, inputs, kwargs)
        prompt = ids[0].tolist()
        with self._turn():
            try:
                admission = self._engine.admit(prompt)
                self._note(len(prompt), admission)
                if admission is None:
                    return self.model.generate(ids, **kwargs)
                return self._generate(ids, admission, kwargs)
            finally:
                self._engine.carry_on()

    def _generate(self, ids: torch.Tensor, admission: Admission, kwargs: dict[str, Any]) -> Any:
        live = admission.live[0]
        argument = live.described.argument
        try:
            with followed(self.model, live):
                with torch.no_grad():
                    for depth in sorted(admission.depths):
                        if live.count < depth < ids.shape[1]:
                            part = ids[:, live.count : depth].to(self.model.device)
                            self.model(input_ids=part, **{argument: live}, use_cache=True)
                live.first_of_generate = True
                out = self.model.generate(ids, **{argument: live}, **kwargs)
        except LoadFailed:
            self._engine.drop(admission)
            return self.model.generate(ids, **kwargs)
        except BaseException:
            self._keep(admission, final=False)
            raise
        self._keep(admission, final=True)
        return out

    def _keep(self, admission: Admission, final: bool) -> None:
        live = admission.live[0]
        self._stats.note_pass(live.prefill_tokens, live.prefill_s)
        self._stats.waited_s += admission.waited_s if live.reused else 0.0
        try:
            self._engine.keep(admission, final)
        except BaseException:
            self._engine.drop(admission)
            raise

    def _note(self, tokens: int, admission: Admission | None) -> None:
        stats = self._stats
        stats.requests += 1
        stats.prompt_tokens += tokens
        hits = admission.hits if admission is not None else {}
        stats.uncached += admission is None
        stats.computed_tokens += tokens - sum(hits.values())
        for tier, found in hits.items():
            stats.hits[tier] += found

    def match(self, input_ids: torch.Tensor) -> int:
        """Tokens of a prompt that would not be computed now."""
        prompt = prompt_of(self.model, input_ids, {})[0].tolist()
        with self._turn():
            found = self._engine.match(prompt)
            self._engine.carry_on()
            return found

    @property
    def stats(self) -> Stats:
        """What the cache has done so far: a copy, which prints as a small table."""
        found = copy.deepcopy(self._stats)
        with self._turn():
            found.bytes = self._engine.used_bytes()
        return found

    def clear(self, storage: bool = False) -> None:
        """Forget every prefix in memory; with `storage`, also what the store has of this model."""
        with self._turn():
            self._engine.clear(storage)
            self._engine.carry_on()

    def flush(self, timeout_s: float = _CLOSE_S) -> bool:
        """Wait until everything that was computed is on host and stored. Returns whether it is."""
        with self._turn():
            return self._engine.settle(timeout_s)

    def close(self, timeout_s: float = _CLOSE_S) -> bool:
        """Wait as `flush` does, then end. Called at the end of the program, too."""
        _open.discard(self._engine)
        return self._engine.close(timeout_s)

    def __enter__(self) -> PrefixCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The time of one call. Others wait, but a call from inside it would wait for itself."""
        here = threading.get_ident()
        if self._owner == here:
            raise ClosedError(
                "cache: expected a call after the one under way, found one from inside it, as of "
                "a streamer or a stopping criterion; call it when generate has returned"
            )
        with self._engine.lock:
            if self._engine.closed:
                raise ClosedError("cache: expected an open one, found one that was closed")
            self._engine.check()
            self._owner = here
            try:
                yield
            finally:
                self._owner = 0


def _collected(engine: Engine) -> None:
    """The cache is gone, maybe while a thread of its engine runs: end it on another one."""
    if engine in _open:
        _open.discard(engine)
        threading.Thread(target=engine.close, args=(_CLOSE_S,), daemon=True).start()


@atexit.register
def _close_all() -> None:
    while _open:
        _open.pop().close(_CLOSE_S)
