"""An exclusive host tier: both tiers together hit what one LRU of their summed size hits."""

from __future__ import annotations

from pathlib import Path

import pytest

from .rig import replayed, turns_of


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return turns_of(tmp_path_factory.mktemp("exclusive"), "--clients", "12", "--rounds", "6")


def hit_tokens(trace: str, device: int, host: int, *options: str) -> dict[str, int]:
    """By tier."""
    sizes = ["--device-pages", str(device), "--host-pages", str(host), "--page-size", "16"]
    given = [trace, "--mode", "hits", "--check", "sampled", *sizes, *options]
    found: dict[str, int] = replayed(Path(trace).parent, *given)["whole"]["hit_tokens"]
    return found


@pytest.mark.parametrize(("device", "host"), [(400, 800), (800, 300), (250, 2500)])
def test_both_tiers_hit_what_one_lru_of_their_summed_size_hits(
    trace: str, device: int, host: int
) -> None:
    one = hit_tokens(trace, device + host, 0)
    both = hit_tokens(trace, device, host, "--write-policy", "write_back", "--exclusive")
    assert both["device"] + both["host"] == one["device"] > 0
    assert both["host"] > 0
