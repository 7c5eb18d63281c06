"""What stands in for modules that a CPU does not have: what an import may make of it, and what it
must not hide."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz.stubs import Stubs

ENGINE = {
    "engine/__init__.py": "raise AssertionError('the init of a bare package ran')",
    "engine/cache/__init__.py": "from kernels.fast import copy\nfrom .tree import Tree",
    "engine/cache/tree.py": "class Tree: pass",
    "engine/configs/__init__.py": "raise AssertionError('the init of a bare package ran')",
    "engine/configs/sizes.py": "PAGE = 64",
    "engine/layers/__init__.py": "raise AssertionError('a stub was imported')",
}


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubs]:
    """The hook, with an engine to import."""
    for name, text in ENGINE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    stubs = Stubs(["kernels", "engine.layers"], ["engine", "engine.configs"], "1.2.3")
    stubs.install()
    yield stubs
    sys.meta_path.remove(stubs)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_bare_package_has_its_real_modules_and_does_not_run(stubs: Stubs) -> None:
    tree = import_module("engine.cache.tree")
    engine = sys.modules["engine"]
    assert tree.Tree.__module__ == "engine.cache.tree"
    assert engine.__version__ == "1.2.3"
    assert engine.cache is sys.modules["engine.cache"]  # type: ignore[attr-defined]


def test_a_name_of_a_bare_package_is_its_module_where_there_is_one(stubs: Stubs) -> None:
    configs: Any = import_module("engine.configs")
    assert configs.sizes.PAGE == 64
    assert configs.ModelConfig is configs.ModelConfig
    with pytest.raises(ModuleNotFoundError):
        import_module("engine.configs.missing")


def test_everything_below_a_stub_is_a_stub(stubs: Stubs) -> None:
    deep: Any = import_module("engine.layers.attention.flash")
    assert deep.Backend.forward.__name__ == "forward"
    assert not hasattr(deep, "__wrapped__")


def test_a_stub_decorates_and_annotates(stubs: Stubs) -> None:
    kernels: Any = import_module("kernels")

    @kernels.jit
    @kernels.autotune(key=["rows"])
    def copy(rows: int | kernels.Tensor) -> kernels.Tensor[int]:
        return rows + 1

    assert copy(1) == 2
    assert kernels.Tensor | None
    assert "kernels.Tensor" | kernels.Tensor


def test_a_class_of_the_engine_has_what_it_defines_and_no_more(stubs: Stubs) -> None:
    """Else an attribute that the engine forgot to set would be there."""
    kernels: Any = import_module("kernels")

    class Backend(kernels.Backend, ABC, option=1):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("anything", at=2)
            self.pages = 3

        @abstractmethod
        def copy(self) -> None: ...

    class Cpu(Backend):
        def copy(self) -> None: ...

    with pytest.raises(TypeError):
        Backend()
    assert Cpu().pages == 3
    assert issubclass(Cpu, kernels.Backend)
    with pytest.raises(AttributeError, match="'Cpu' object has no attribute 'rows'"):
        _ = Cpu().rows
    with pytest.raises(AttributeError, match="'Cpu' has no attribute 'rows'"):
        _ = Cpu.rows
    assert not hasattr(Cpu, "page_size")
