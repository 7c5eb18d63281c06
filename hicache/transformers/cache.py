"""`PrefixCache`: prompts of a model that begin alike are computed once.

    cache = PrefixCache(model, storage="file:~/.cache/kv")
    out = cache.generate(input_ids, max_new_tokens=64)

docs/transformers.md says what is stored, and what it brings.
"""

from __future__ import annotations

import atexit
import copy
import gc
import inspect
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from hicache.clock import Clock
from hicache.core.errors import Detached
from hicache.storage.base import TIMEOUT_S, Losses

from . import ClosedError
from .arguments import check, check_options, check_seconds, is_assisted, prompt_of
from .describing import Setups, base_of, check_model
from .engine import Admission, Engine, Options, Request
from .identity import Identity
from .live import followed

_CLOSE_S = 30.0
_open: set[Engine] = set()


@dataclass(slots=True)
class Stats:
    """requests: calls of `generate`. uncached: of them, those that got no pages. unkept: those
    whose rows were not kept, since the model was changed before they ended. hits: reused
    prompt tokens by tier. computed_tokens, prompt_tokens: of prompts. unstored_tokens: in memory,
    and not known to be stored. losses: what the store did not do."""

    requests: int = 0
    uncached: int = 0
    unkept: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    hits: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("device", "host", "disk"), 0)
    )
    unstored_tokens: int = 0
    losses: Losses = field(default_factory=Losses)

    @property
    def saved_tokens(self) -> int:
        """Prompt tokens that were not computed."""
        return sum(self.hits.values())

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "saved_tokens": self.saved_tokens}

    def __str__(self) -> str:
        """What is not 0, a line for each."""
        rows = self.as_dict()
        rows |= {f"hits, {tier}": tokens for tier, tokens in rows.pop("hits").items()}
        rows |= rows.pop("losses")
        shown = {name.replace("_", " "): number for name, number in rows.items() if number}
        return "\n".join(f"{name:<20}{number:>12,.0f}" for name, number in shown.items())


class PrefixCache:
    """A cache in front of one model. Several threads may use it, one call at a time.

    device_tokens    tokens whose rows are kept where the model is.
    host_tokens      tokens that host memory has room for; 0 for no host memory.
    storage          address of a store that outlives the process, such as file:DIR?size=50GB; None
                     for none.
    timeout_s        seconds without progress after which the store counts as hung.
    page_size        tokens of a page: what is shared is a whole number of pages.
    interval_tokens  tokens between two stored states of a model that has states.
    wait_s           the longest that a request waits for storage before it computes.
    check            "sampled": the core is checked for a small share of the time. After a failure
                     nothing is reused any more, and the log says why.
    check_dir        folder for the events before a failure; empty for that of the system.

    Raises UnsupportedModelError, and CallerError for sizes and addresses that cannot be used.
    """

    def __init__(
        self,
        model: Any,
        *,
        device_tokens: int = 8192,
        host_tokens: int = 65536,
        storage: str | None = None,
        timeout_s: float = TIMEOUT_S,
        page_size: int = 16,
        interval_tokens: int = 256,
        wait_s: float = 5.0,
        check: str = "",
        check_dir: str = "",
    ) -> None:
        values = (device_tokens, host_tokens, storage, timeout_s)
        options = Options(*values, page_size, interval_tokens, wait_s, check, check_dir)
        check_options(options)
        self.model = base_of(model)
        check_model(self.model)
        with torch.inference_mode(False):  # pools are written in calls outside of it, too
            self._identity = Identity(self.model)
            self._setups = Setups(self.model, page_size)
            computation = self._identity.now()
            described, weights = self._setups.checked(computation.setup), computation.weights.hex()
            name, place = type(self.model).__name__, self.model.device
            self._engine = Engine(place, described, name, weights, options, Clock())
        self._stats = Stats()
        self._owner = 0
        _open.add(self._engine)
        weakref.finalize(self, _collected, [self._engine]).atexit = False

    def generate(self, inputs: Any = None, **kwargs: Any) -> Any:
        """What `model.generate` returns for the same arguments. Raises UnsupportedArgumentError for
        those that a cache cannot serve."""
        kwargs = dict(kwargs)
        ids = prompt_of(inputs, kwargs)
        check(self.model, ids, kwargs)
        prompt = ids[0].tolist()
        with self._turn():
            request = self._request(prompt)
            admission = None
            if not is_assisted(self.model, kwargs):
                with suppress(Detached):
                    admission = self._engine.admit(request)
            self._note(len(prompt), admission)
            if admission is None:
                return self.model.generate(ids, **kwargs)
            return self._generate(ids, admission, kwargs)

    def _generate(self, ids: torch.Tensor, admission: Admission, kwargs: dict[str, Any]) -> Any:
        live, done = admission.live, False
        cache = {live.described.argument: live}
        try:
            with followed(self.model, live):
                for depth in sorted(live.wanted):
                    if live.count < depth < ids.shape[1]:
                        self._compute(ids[:, live.count : depth], cache)
                live.first_of_generate = True
                out = self.model.generate(ids, **cache, **kwargs)
            done = True
        finally:
            self._keep(admission, done)
        return out

    def _compute(self, part: torch.Tensor, cache: dict[str, Any]) -> None:
        """Compute tokens that the cache of the model lacks."""
        own = inspect.signature(type(self.model).forward).parameters
        fewest = {"logits_to_keep": 1} if "logits_to_keep" in own else {}
        with torch.no_grad():
            ids = part.to(self.model.device)
            self.model(input_ids=ids, **cache, use_cache=True, **fewest)

    def _request(self, prompt: Sequence[int]) -> Request:
        """A prompt with the computation of now. Raises UnsupportedModelError if that is none that
        the pools can serve."""
        if any(torch.is_autocast_enabled(place) for place in ("cpu", "cuda")):
            torch.clear_autocast_cache()  # it has weights as they were before a change
        computation = self._identity.now()
        return Request(prompt, computation, self._setups.checked(computation.setup))

    def _keep(self, admission: Admission, final: bool) -> None:
        """Give what was computed to the tree, if the model is still the one that computed it.
        final: the call has ended well."""
        if self._identity.is_still(admission.request.computation):
            with suppress(Detached):
                self._engine.keep(admission, final)
        else:
            self._stats.unkept += 1

    def _note(self, tokens: int, admission: Admission | None) -> None:
        stats = self._stats
        stats.requests += 1
        stats.prompt_tokens += tokens
        hits = admission.hits if admission is not None else {}
        stats.uncached += admission is None
        stats.computed_tokens += tokens - sum(hits.values())
        for tier, hit in hits.items():
            stats.hits[tier] += hit

    def match(self, input_ids: torch.Tensor) -> int:
        """Tokens of a prompt that would not be computed now."""
        prompt = prompt_of(input_ids, {})[0].tolist()
        with self._turn(), suppress(Detached):
            return self._engine.match(self._request(prompt))
        return 0

    @property
    def stats(self) -> Stats:
        """What the cache has done so far: a copy, which prints as a small table."""
        with ExitStack() as stack:
            with suppress(ClosedError):  # then nobody else can change anything
                stack.enter_context(self._turn())
            stats = copy.deepcopy(self._stats)
            stats.losses = self._engine.losses
            stats.unstored_tokens = self._engine.unstored_tokens
            return stats

    def clear(self, storage: bool = False) -> None:
        """Forget every prefix in memory; with `storage`, also what the store has of this model."""
        with self._turn(), suppress(*() if storage else (Detached,)):
            self._engine.clear(storage)

    def flush(self, timeout_s: float = _CLOSE_S) -> bool:
        """Wait until everything that was computed is on host and stored. Returns whether it is."""
        check_seconds("timeout_s", timeout_s)
        with self._turn():
            return self._engine.flush(timeout_s)

    def close(self, timeout_s: float = _CLOSE_S) -> bool:
        """Wait as `flush` does, then end. Called at the end of the program, too. If another call is
        under way for longer than that, the cache stays open."""
        check_seconds("timeout_s", timeout_s)
        self._check_outside()
        done = self._engine.close(timeout_s)
        if self._engine.closed:
            _open.discard(self._engine)
        return done

    def __enter__(self) -> PrefixCache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The time of one call. Others wait, but a call from inside it would wait for itself."""
        self._check_outside()
        with self._engine.lock:
            if self._engine.closed:
                raise ClosedError("cache: expected an open one, found one that was closed")
            self._engine.check()
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = 0
                with suppress(Detached):
                    self._engine.sweep()
                self._engine.carry_on()

    def _check_outside(self) -> None:
        if self._owner == threading.get_ident():
            raise ClosedError(
                "cache: called from inside its own generate(), as by a streamer or a stopping "
                "criterion; call it when generate has returned"
            )


def _collected(last: list[Engine]) -> None:
    """The cache is gone, maybe while its own thread runs: end it on another one."""
    if last[0] in _open:
        _open.discard(last[0])
        threading.Thread(target=_end, args=(last,), daemon=True).start()


def _end(last: list[Engine]) -> None:
    gone, clock = weakref.ref(last[0]), last[0].clock
    last.pop().close(_CLOSE_S)
    for _ in range(20):  # its pools are in a cycle, which the thread that drops it may still have
        gc.collect()
        if gone() is None:
            break
        clock.sleep(0.05)


@atexit.register
def _close_all() -> None:
    while _open:
        _open.pop().close(_CLOSE_S)
