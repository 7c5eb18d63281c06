"""Settings of windows and states that make no sense are refused before a core is built."""

from __future__ import annotations

import pytest

from hicache.core.core import Core
from hicache.core.errors import CallerError
from tests.configs import configured


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mamba_interval": 6}, "mamba_interval"),
        ({"mamba_interval": -4}, "mamba_interval"),
        ({"mamba_states_per_path": -1}, "mamba_states_per_path"),
        ({"device_pages": (8, 0)}, "device_pages"),
        ({"swa_window": 8}, "settings"),
    ],
)
def test_meaningless_settings_are_refused(settings: dict[str, object], words: str) -> None:
    full: dict[str, object] = {"page_size": 4, "device_pages": (8, 4), "host_pages": (0, 0)}
    given = {**full, "components": ("full", "mamba"), **settings}
    with pytest.raises(CallerError, match=words):
        Core(configured(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"swa_window": 0}, "swa_window"),
        ({"swa_window": -3}, "swa_window"),
        ({"device_pages": (8, 2)}, "device_pages"),
        ({"device_pages": (8,)}, "device_pages"),
        ({"components": ("full", "lstm"), "swa_window": 0}, "component"),
        ({"components": ("swa", "full")}, "components"),
    ],
)
def test_meaningless_windows_are_refused(settings: dict[str, object], words: str) -> None:
    full: dict[str, object] = {"page_size": 4, "device_pages": (8, 8), "host_pages": (0, 0)}
    given = {**full, "components": ("full", "swa"), "swa_window": 8, **settings}
    with pytest.raises(CallerError, match=words):
        Core(configured(**given))  # type: ignore[arg-type]
