"""The laws of outages with real servers: a few histories of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import servers


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("scheme", "histories"), [("redis", 12), ("s3", 4), ("mooncake", 3)])
def test_no_loss_is_silent_and_no_notice_is_needless(
    scheme: str, histories: int, tmp_path: Path
) -> None:
    met = servers.play_some(scheme, histories, 2, tmp_path)
    assert met[scheme] == histories
    assert met["outages"] + met["write_outages"] > 0
