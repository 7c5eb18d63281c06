"""Whatever a worker computes with: each way in which it changes is noticed, and what is on disk
counts only once vLLM has loaded it."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hicache.storage.changes import Samples
from hicache.vllm.orders import Adapter
from hicache.vllm.worker import Adapters, Watching, digest_of

from .engine import Worker
from .playing import written


def replaced(worker: Worker) -> None:
    worker.model.weight = torch.nn.Parameter(torch.ones(4, 4))


def pointed_elsewhere(worker: Worker) -> None:
    worker.model.weight.data = torch.zeros(4, 4)


def one_number(worker: Worker) -> None:
    with torch.inference_mode():
        worker.model.weight[2, 1] = 1e-30


def another_module(worker: Worker) -> None:
    worker.model.part = torch.nn.Linear(4, 4)


def a_buffer(worker: Worker) -> None:
    worker.model.get_buffer("scale").fill_(2.0)


def a_hook(worker: Worker) -> None:
    worker.model.register_forward_hook(lambda *_: None)


@pytest.mark.parametrize(
    "change",
    [
        *(Worker.reload_weights, Worker.write, replaced, pointed_elsewhere, one_number),
        *(another_module, a_buffer, a_hook),
    ],
)
def test_an_update_is_noticed_once(change: Callable[[Worker], None]) -> None:
    worker = Worker()
    worker.model.part = torch.nn.Identity()
    worker.model.register_buffer("scale", torch.ones(4))
    worker.model.register_buffer("scratch", torch.ones(4), persistent=False)
    watching = Watching(worker)
    worker.model.get_buffer("scratch").fill_(2.0)  # as a pass does
    assert not watching.look()
    assert not watching.changed
    change(worker)
    stamp = watching.look()
    assert stamp
    assert watching.changed
    assert watching.look() == stamp


def test_names_by_which_vllm_and_trainers_write_weights() -> None:
    for name in ("update_weights", "finish_weight_update", "load_weights", "sleep"):
        worker = Worker()
        setattr(worker, name, lambda *_: None)
        watching = Watching(worker)
        getattr(worker, name)(2)
        assert watching.changed, name


@pytest.mark.parametrize("level", [1, 2])
def test_weights_of_a_worker_that_sleeps_are_not_read(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CUDA they are in no memory then. Level 2 forgets them."""
    worker: Any = Worker()
    worker.sleep = worker.wake_up = lambda *_: None
    watching = Watching(worker)
    with monkeypatch.context() as patched:
        patched.setattr(Samples, "_now", lambda _: pytest.fail("weights were read"))
        worker.sleep(level)
        for _ in range(2):
            assert watching.look() == level - 1
            worker.wake_up(["kv_cache"])
    assert watching.changed == (level == 2)
    worker.wake_up(["weights"])
    one_number(worker)
    assert watching.look() == 1


def test_an_adapter_is_what_was_loaded(tmp_path: Path) -> None:
    worker, draw = Worker(), random.Random(0)
    watching = Watching(worker)
    lora = written(tmp_path, 1, draw)
    notices: list[str] = []

    def now() -> Adapter:
        return Adapter(1, digest_of(lora.lora_path, notices.append), lora.lora_path)

    def agrees(adapter: Adapter) -> bool:
        return watching.has((adapter,))

    first = now()
    assert agrees(first)  # it would be loaded from disk
    worker.lora_manager.add_adapter(lora)
    (Path(lora.lora_path) / "adapter_config.json").write_text('{"lora_alpha": 8}')
    second = now()
    assert first != second
    assert agrees(first)
    assert not agrees(second)
    worker.lora_manager.add_adapter(replace(lora, load_inplace=True))
    assert agrees(second)
    assert watching.look() == 1
    worker.lora_manager.loaded.clear()
    (Path(lora.lora_path) / "adapter_model.safetensors").write_text("c")
    assert agrees(now())
    assert not agrees(second)
    assert not notices
    (Path(lora.lora_path) / "adapter_config.json").unlink()
    assert not now().digest
    [line] = notices
    assert line.startswith("hicache: adapter: expected adapter_config.json in ")


def test_an_adapter_that_is_written_while_it_is_loaded_is_none(tmp_path: Path) -> None:
    """Either half of what vLLM has read may be old."""
    worker, lora = Worker(), written(tmp_path, 1, random.Random(0))
    load = worker.lora_manager._load_adapter

    def slowly(request: Any) -> Any:
        text = load(request)
        (Path(lora.lora_path) / "adapter_config.json").write_text('{"lora_alpha": 8}')
        return text

    worker.lora_manager._load_adapter = slowly  # type: ignore[method-assign]
    watching = Watching(worker)
    before = Adapter(1, digest_of(lora.lora_path, pytest.fail), lora.lora_path)
    worker.lora_manager.add_adapter(lora)
    now = Adapter(1, digest_of(lora.lora_path, pytest.fail), lora.lora_path)
    assert not watching.has((before,))
    assert not watching.has((now,))


def test_files_rewritten_in_place_are_read_again_also_if_their_time_is_set_back(
    tmp_path: Path,
) -> None:
    lora = written(tmp_path, 1, random.Random(1))
    adapters = Adapters(pytest.fail)
    file = Path(lora.lora_path) / "adapter_config.json"
    result, before = file.stat(), adapters.digest(lora)
    file.write_bytes(file.read_bytes()[::-1])
    while file.stat().st_ctime_ns == result.st_ctime_ns:  # within one tick of the system's clock
        os.utime(file, ns=(result.st_atime_ns, result.st_mtime_ns))
    os.utime(file, ns=(result.st_atime_ns, result.st_mtime_ns))
    assert adapters.digest(lora) != before
