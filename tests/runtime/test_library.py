"""The public face of the library: its names, the example in the docs, and `Driver.settle`."""

import ast
import re
import sys
from pathlib import Path

import pytest

import hicache
from hicache import CallerError, Config, Core, Driver, ImmediateExecutor, registry
from hicache.core.events import Reply
from hicache.runtime.controller import ControllerOptions
from tests.traces.rig import python

from .test_controller import Bench

ROOT = Path(hicache.__file__).parent.parent
PAGE = 4
PROMPT = list(range(18))


def test_the_example_in_the_docs_runs_and_prints_what_they_show(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs/library.md").read_text()
    example, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [shown] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert len(re.findall(r"^.*\S.*$", example, re.MULTILINE)) <= 32
    try:
        exec(compile(example, "docs/library.md", "exec"), {})
    finally:
        registry.remove(registry.EVICTION_POLICIES, "fewest_hits")
    printed = capsys.readouterr().out.splitlines()
    assert set(shown.splitlines()) <= set(printed)
    assert printed[-1].endswith("operations checked, 0 violations")
    orders = [int(line.split()[1].rstrip(":")) for line in printed[:-1]]
    assert orders == list(range(11, -1, -1)), "the shortest prompt first"


def test_every_public_name_exists_and_has_its_type() -> None:
    stub = ast.parse((ROOT / "hicache/__init__.pyi").read_text())
    typed = {
        alias.name: f"hicache.{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert typed == hicache._MODULES
    assert sorted(typed) == hicache.__all__
    for name, module in typed.items():
        assert getattr(hicache, name) is getattr(sys.modules[module], name)
        assert name in dir(hicache)


def test_importing_the_package_loads_no_numpy() -> None:
    code = "import sys, hicache; assert 'numpy' not in sys.modules; from hicache import Core"
    python("-c", code, check=True)


class Delayed(ImmediateExecutor):
    """Ends its transfers after `pause` was called."""

    ready = False

    def poll(self) -> list[Reply]:
        return super().poll() if self.ready else []

    def pause(self) -> None:
        self.ready = True


def served(driver: Driver, request: int, tokens: list[int]) -> list[object]:
    driver.feed(hicache.Arrived.from_tokens(request, tokens, PAGE))
    outcomes = driver.feed(hicache.AdmitWanted(request, len(tokens)))
    driver.settle(getattr(driver.executor, "pause", None))
    driver.feed(hicache.PrefillDone(outcomes[-1].transfer))  # type: ignore[union-attr]
    driver.feed(hicache.Finished.from_tokens(request, tokens, PAGE))
    return list(outcomes)


@pytest.mark.parametrize("executor", [ImmediateExecutor, Delayed])
def test_settle_ends_every_transfer(executor: type[ImmediateExecutor]) -> None:
    core = Core(Config(PAGE, device_pages=(6,), host_pages=(32,)))
    driver = Driver(core, executor())
    for request, start in enumerate((0, 100, 0)):
        tokens = [start + token for token in PROMPT]
        outcomes = served(driver, request, tokens)
        if isinstance(driver.executor, Delayed):
            driver.executor.ready = False
        driver.settle(getattr(driver.executor, "pause", None))
        assert not core.view.transfers
    assert any(isinstance(item, hicache.Load) for item in outcomes), "the third came from host"


def test_settle_starts_the_transfers_that_had_to_wait_for_others() -> None:
    """A transfer queue of one batch has its copy under way when the next one is queued."""
    bench = Bench(options=ControllerOptions(backup_batches=1))
    core = Core(Config(PAGE, device_pages=(32,), host_pages=(32,)))
    driver = Driver(core, bench.controller)

    def step() -> None:
        assert bench.clock.next_ns() >= 0, "nothing is going to happen"
        bench.clock.step()

    for request in range(3):
        tokens = [100 * request + token for token in PROMPT]
        driver.feed(hicache.Arrived.from_tokens(request, tokens, PAGE))
        prefill = driver.feed(hicache.AdmitWanted(request, len(tokens)))[-1]
        driver.feed(hicache.PrefillDone(prefill.transfer))  # type: ignore[union-attr]
        driver.feed(hicache.Finished.from_tokens(request, tokens, PAGE))
        driver.executor.start()
    assert len(core.view.transfers) == 3
    driver.settle(step)
    assert not core.view.transfers
    assert len(bench.device.copies) == 2, "those that waited go out together"


def test_settle_leaves_forward_passes_to_the_caller() -> None:
    driver = Driver(Core(Config(PAGE, device_pages=(6,))), ImmediateExecutor())
    driver.feed(hicache.Arrived.from_tokens(0, PROMPT, PAGE))
    driver.feed(hicache.AdmitWanted(0, len(PROMPT)))
    assert driver.settle() == []
    assert len(driver.core.view.transfers) == 1


def test_the_example_of_storage_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/library.md").read_text()
    _, example, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    left: dict[str, object] = {}
    exec(compile(example, "docs/library.md", "exec"), left)
    assert (tmp_path / "pages").is_dir()
    assert left["attachment"].wait_closed(0)  # type: ignore[attr-defined]


class Sound:
    name, whole_path, order = "sound", False, (hicache.Term("last_use"),)

    def rank(self, node: object, component: int) -> int:
        return 0


class Once:
    name, threshold, on_evict, contiguous = "once", 1, False, True


def test_a_policy_is_known_by_its_name_and_needs_its_parts() -> None:
    hasty = type("Hasty", (), {"name": "hasty", "waits": False, "limited": False})
    added = {
        registry.EVICTION_POLICIES: hicache.add_eviction_policy(Sound),
        registry.WRITE_POLICIES: hicache.add_write_policy(Once),
        registry.PREFETCH_POLICIES: hicache.add_prefetch_policy(hasty),
    }
    try:
        eviction, write, prefetch = added.values()
        policies = {"write_policy": write, "prefetch_policy": prefetch}
        view = Core(Config(1, (4,), eviction_policy=eviction, **policies)).view  # type: ignore[arg-type]
        assert isinstance(view.eviction, Sound)
        assert isinstance(view.writes, Once)
        assert isinstance(view.prefetching, hasty)
        for maker, text in (
            (type("Nameless", (), {}), "found none of the name 'name'"),
            (type("Numbered", (Sound,), {"name": 7}), "expected a name as text, found 7"),
            (type("Taken", (Sound,), {"name": "lru"}), "none of .*lru.* has, found 'lru'"),
            (Once, "found none of the name 'whole_path'"),
        ):
            with pytest.raises(CallerError, match=text):
                hicache.add_eviction_policy(maker)
    finally:
        for package, name in added.items():
            registry.remove(package, name)
