"""The laws of outages hold in drawn histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import laws

HISTORIES = 300


@pytest.mark.one_in(4)
def test_no_loss_is_silent_and_no_notice_is_needless(tmp_path: Path) -> None:
    met = laws.play_many(HISTORIES, 1, tmp_path)
    assert min(met[name] for name in ("outages", "write_outages", *laws.LOCAL)) > 10, met
    assert met["lookups_unanswered"] > 1000
