"""A busy machine is no dead store: a call of a store may take as long as a test waits. Models are
small, so one thread is fastest."""

from importlib import import_module

import pytest

from hicache.storage.base import StorageOptions
from tests.needs import PATIENCE_S


@pytest.fixture(autouse=True)
def patient_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    def patient(timeout_s: float) -> StorageOptions:
        return StorageOptions(max(timeout_s, PATIENCE_S))

    building = import_module("hicache.transformers.engine")
    monkeypatch.setattr(building, "StorageOptions", patient)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> str:
    """Where the model is."""
    text: str = request.param
    return text


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import_module("torch").set_num_threads(1)
