"""Order of the tests: the longest go first, so that every core has work until the end."""

from __future__ import annotations

import pytest

LONG = ("test_every_command_in_a_block_runs", "test_the_same_runs_pass_without_a_bug")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.name.startswith(LONG))
