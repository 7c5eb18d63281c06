"""What a worker of vLLM computes with: its weights, and the adapters that it has loaded. Reads its
worker by its attributes and imports nothing of vLLM.

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

from .orders import Adapter

_WRITES = (
    *("load_model", "reload_weights", "start_weight_update", "start_draft_weight_update"),
    *("update_weights", "finish_weight_update", "load_weights"),
)


class Watching:
    """worker: vLLM's. changed: that its weights are others than at the start. stamp: counts
    everything that has changed. models: of the worker, a draft among them."""

    def __init__(self, worker: Any) -> None:
        self.stamp, self.changed = 0, False
        self._asleep = False  # the weights are in no memory that can be read
        self._adapters: dict[int, str] = {}
        runner = worker.model_runner
        models = [runner.get_model(), getattr(runner, "get_draft_model", lambda: None)()]
        self.models = [one for one in models if hasattr(one, "modules")]
        for owner in (worker, runner, *self.models):
            for name in _WRITES:
                after(owner, name, self._updated)
        after(worker, "sleep", self._slept)
        after(worker, "wake_up", self._woke)
        self._manager = getattr(runner, "lora_manager", None)
        if self._manager is not None:
            after(self._manager, "_load_adapter", self._loaded)
        self._samples = Samples(self.models)

    def look(self) -> int:
        """The stamp, after a look at the parameters."""
        if not self._asleep and not self.changed and not self._samples.same():
            self._updated()
        return self.stamp

    def has(self, adapters: Sequence[Adapter]) -> bool:
        """Whether these are what the worker has loaded, or what it would load from their files."""
        manager = self._manager
        for one in adapters:
            if manager is None or one.number not in manager.list_adapters():
                self._note(one.number, one.path)
            if self._adapters.get(one.number) != one.digest:
                return False
        return True

    def _loaded(self, request: Any) -> None:
        self._note(request.lora_int_id, request.lora_path)

    def _note(self, number: int, path: str) -> None:
        digest = digest_of(path, lambda text: None)
        self.stamp += self._adapters.get(number, digest) != digest
        self._adapters[number] = digest

    def _updated(self, *_: Any, **__: Any) -> None:
        self.stamp += 1
        self.changed = True

    def _slept(self, level: int = 1) -> None:
        self._asleep |= level > 0
        if level > 1:
            self._updated()

    def _woke(self, tags: Sequence[str] | None = None) -> None:
        self._asleep &= tags is not None and "weights" not in tags


def digest_of(path: str, notice: Callable[[str], None]) -> str:
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
        path = adapter.lora_path
        try:
            files = [(one.name, one.stat()) for one in scandir(path)]
        except OSError:
            files = []
        # another stamp when a file was written, also if its time was set back
        stamp = sorted((name, one.st_ino, one.st_size, one.st_ctime_ns) for name, one in files)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = self._known[path] = stamp, digest_of(path, self._notice)
        return known[1]
