"""The corners of the configuration that the random caller visits: one seed, one configuration.

Tiny pools first. Every seed is another combination of page size, window, checkpoint interval, pool
sizes and limits; components and write policy are given, so that each pair sees the same number.
"""

from __future__ import annotations

from hicache.core.config import Config

COMPONENTS = (("full",), ("full", "swa"), ("full", "mamba"), ("full", "swa", "mamba"))
POLICIES = ("write_through", "write_through_selective", "write_back")
PAGE_SIZES = (1, 4, 64)
# Windows in quarters of a page: one page to eight, no multiple of it, and less than a page.
QUARTERS = (4, 8, 6, 32, 1, 11, 20, 17, 3)
LONGEST = 14  # pages of the longest prompt


def config_of(seed: int, components: tuple[str, ...] = ("full",), policy: str = "") -> Config:
    page = PAGE_SIZES[seed // 3 % 3]
    window = max(1, QUARTERS[seed // 9 % 9] * page // 4)
    states = "mamba" in components
    interval = page * (1, 1, 2, 3)[seed // 2 % 4] if states else 0
    device = {
        "full": (16, 30, 64)[seed // 9 % 3],
        "swa": -(-window // page) + 1 + interval // page + (3, 12, 0, 24, 1)[seed // 3 % 5],
        "mamba": (12, 4, 20, 9, 3, 30, 1)[seed % 8 % 7],
    }
    host = {
        "full": (40, 8, 100, 0, 25, 60, 1)[seed // 2 % 7],
        "swa": (12, 40, 3, 20, 0)[seed % 5],
        "mamba": (6, 20, 1, 40, 0)[seed // 2 % 5],
    }
    backed = host["full"] > 0
    return Config(
        page,
        tuple(device[name] for name in components),
        tuple(host[name] if backed else 0 for name in components),
        components=components,
        write_policy=policy or POLICIES[seed % 3],
        load_threshold_pages=1 + seed % 5 // 4,
        load_quota_pages=(0, 6, 0)[seed // 2 % 3],
        max_backups=(4096, 2)[seed // 4 % 2],
        kv_events=seed % 2 == 0,
        swa_window=window if "swa" in components else 0,
        mamba_interval=interval,
        mamba_states_per_path=(0, 2, 1)[seed // 7 % 3] if states else 0,
    )
