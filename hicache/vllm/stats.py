"""The connector's figures as vLLM's: logged with its own, and offered to Prometheus.

One flat record of numbers; those of several ranks and of several steps are added.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

# Names for Prometheus, and what they say.
METRICS = {
    "requests": "Requests that vLLM admitted",
    "asked_tokens": "Tokens of their prompts",
    "vllm_tokens": "Tokens that vLLM had itself, before a load that landed",
    "host_tokens": "Tokens loaded from host memory",
    "storage_tokens": "Tokens loaded from storage",
    "saved_pages": "Pages copied to host memory",
    "unsaved_pages": "Pages for which there was no room",
    "failed_loads": "Loads that failed, whose requests were computed",
    "failed_saves": "Copies to host that failed",
    "waits": "Requests that waited for storage",
    "waited_s": "Seconds that they waited",
    "loaded_bytes": "Bytes copied to the device",
    "saved_bytes": "Bytes copied to host memory",
    "store_losses": "Values that the store did not read or write",
}


class Stats(KVConnectorStats):
    """data: numbers by name of `METRICS`, since the last look."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: Any) -> Stats:
        for name, number in other.data.items():
            self.data[name] = self.data.get(name, 0) + number
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not any(self.data.values())


class PromMetrics(KVConnectorPromMetrics):
    """A counter for each name, `hicache:NAME`."""

    def __init__(self, config: Any, kinds: Any, labels: list[str], values: Any) -> None:
        super().__init__(config, kinds, labels, values)
        self._counters = {
            name: self._counter_cls(name=f"hicache:{name}", documentation=text, labelnames=labels)
            for name, text in METRICS.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, number in transfer_stats_data.items():
            if name in self._counters and number > 0:
                labels = self.per_engine_labelvalues[engine_idx]
                self._counters[name].labels(*labels).inc(number)


def newer(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What has been counted since: the differences that are not 0."""
    return {
        name: value - before.get(name, 0)
        for name, value in now.items()
        if value != before.get(name, 0)
    }
