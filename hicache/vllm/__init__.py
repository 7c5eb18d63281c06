"""A connector for vLLM: this cache's host and storage tiers under vLLM's own (docs/vllm.md).

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "HicacheConnector",
      "kv_connector_module_path": "hicache.vllm", "kv_role": "kv_both",
      "kv_connector_extra_config": {"host": "64GB", "storage": "file:/data/kv"}}'

vLLM itself is imported when its connector is first asked for, so the rest also works without it.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

__all__ = ["HicacheConnector", "register"]


def register() -> None:
    """Makes the connector's name known to vLLM, which calls this in each of its processes (a plugin
    of the group `vllm.general_plugins`). MultiConnector looks for figures by that name."""
    factory = import_module("vllm.distributed.kv_transfer.kv_connector.factory")
    with suppress(ValueError):  # it is known
        factory.KVConnectorFactory.register_connector(
            "HicacheConnector", __name__, "HicacheConnector"
        )


def __getattr__(name: str) -> Any:
    if name != "HicacheConnector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(".connector", __name__).HicacheConnector
