"""The laws of outages hold in drawn histories, with simulated faults and with real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import laws, servers

HISTORIES = 100


@pytest.mark.one_in(64)
def test_no_loss_is_silent_and_no_notice_is_needless(tmp_path: Path) -> None:
    met = laws.play_many(HISTORIES, 1, tmp_path)
    assert min(met[name] for name in ("outages", "write_outages", *laws.LOCAL)) > 3, met
    assert met["lookups_unanswered"] > 500


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("scheme", "histories"), [("redis", 12), ("s3", 4), ("mooncake", 3)])
def test_so_it_is_with_real_servers(scheme: str, histories: int, tmp_path: Path) -> None:
    met = servers.play_some(scheme, histories, 2, tmp_path)
    assert met[scheme] == histories
    assert met["outages"] + met["write_outages"] > 0
