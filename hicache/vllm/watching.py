"""What a worker of vLLM computes with: its weights, counted up with each update, and the adapters
that it has loaded. Reads vLLM's worker by its attributes and imports nothing of vLLM.

Updates are noticed where vLLM's worker and model write weights, and by samples of the parameters
where somebody else does. An adapter is what its files were when vLLM has loaded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import scandir
from typing import Any

from hicache.core.errors import CallerError
from hicache.storage.changes import Samples, after
from hicache.storage.identity import digest_of_adapter

from .orders import Adapter, Change, Message

_WRITES = (
    *("load_model", "reload_weights", "start_weight_update", "start_draft_weight_update"),
    *("update_weights", "finish_weight_update"),
)


class Watching:
    """worker: vLLM's. rank: its own. stamp: counts everything that has changed. models: of the
    worker, a draft among them."""

    def __init__(self, worker: Any, rank: int) -> None:
        self.stamp = 0
        self._asleep = False  # the weights are in no memory that can be read
        self._rank, self._updates = rank, 0
        self._told = (0, dict[int, str]())
        self._adapters: dict[int, str] = {}
        runner = worker.model_runner
        models = [runner.get_model(), getattr(runner, "get_draft_model", lambda: None)()]
        self.models = [one for one in models if hasattr(one, "modules")]
        for owner in (worker, runner, *self.models):
            for name in (*_WRITES, "load_weights"):
                after(owner, name, self._updated)
        after(worker, "sleep", self._slept)
        after(worker, "wake_up", self._woke)
        self._manager = getattr(runner, "lora_manager", None)
        if self._manager is not None:
            after(self._manager, "_load_adapter", self._loaded)
        self._samples = Samples(self.models)

    def look(self) -> int:
        """The stamp, after a look at the parameters."""
        if not self._asleep and not self._samples.same():
            self._updated()
        return self.stamp

    def agrees(self, message: Message) -> bool:
        """Whether the orders are for what this worker computes with."""
        known = dict(message.updates).get(self._rank, 0) == self._updates
        return all([known, *(self._has(one) for one in message.adapters)])

    def news(self, number: int) -> tuple[Change, ...]:
        """What has changed since it was last told. number: of the message that found it so."""
        now = self._updates, dict(self._adapters)
        if now == self._told:
            return ()
        _, before = self._told
        self._told = now
        adapters = {key: one for key, one in now[1].items() if before.get(key) != one}
        return (Change(self._rank, self._updates, number, tuple(adapters.items())),)

    def _has(self, adapter: Adapter) -> bool:
        """An adapter that is not loaded is what its files are now."""
        manager = self._manager
        if manager is None or adapter.number not in manager.list_adapters():
            self._note(adapter.number, adapter.path)
        return self._adapters.get(adapter.number) == adapter.digest

    def _loaded(self, request: Any) -> None:
        self._note(request.lora_int_id, request.lora_path)

    def _note(self, number: int, path: str) -> None:
        digest = called(path, lambda text: None)
        self.stamp += self._adapters.get(number, digest) != digest
        self._adapters[number] = digest

    def _updated(self, *_: Any, **__: Any) -> None:
        self._updates += 1
        self.stamp += 1
        if not self._asleep:
            self._samples.take()

    def _slept(self, level: int = 1) -> None:
        self._asleep |= level > 0
        if level > 1:
            self._updated()

    def _woke(self, tags: Sequence[str] | None = None) -> None:
        self._asleep &= tags is not None and "weights" not in tags


def called(path: str, notice: Callable[[str], None]) -> str:
    """What an adapter is called in keys; empty, and a notice, if its files cannot be read."""
    try:
        return digest_of_adapter(path)
    except CallerError as error:
        notice(f"hicache: {error}; its requests are not cached")
        return ""


class Adapters:
    """What the files of adapters are, read again when they have changed."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._known: dict[str, tuple[Any, str]] = {}

    def digest(self, adapter: Any) -> str:
        """Empty if the files are not there: then nothing is kept of requests with it."""
        stamp, known = _stamp(adapter.lora_path), self._known.get(adapter.lora_path)
        if known is None or known[0] != stamp:
            known = stamp, called(adapter.lora_path, self._notice)
            self._known[adapter.lora_path] = known
        return known[1]


def _stamp(place: str) -> list[tuple[Any, ...]]:
    """Another one when a file in a folder was written, also if its time was set back."""
    try:
        found = [(one.name, one.stat()) for one in scandir(place)]
    except OSError:
        return []
    return sorted(
        (name, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in found
    )
