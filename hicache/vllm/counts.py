"""What the scheduler's half of the connector counts, since the engine began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counts:
    """Tokens and pages count once they have landed, on all ranks.

    requests: admissions by vLLM, also those after a preemption. asked_tokens: of their prompts.
    host_tokens, storage_tokens: loaded, by the tier that had them. vllm_tokens: what vLLM had
    itself of the same prompts, before the load. saved_pages: copied to host, in full attention.
    unsaved_pages: for which the core had no room. failed_loads, failed_saves: which count nowhere
    else. waits: requests that waited for storage, together waited_s seconds."""

    requests: int = 0
    asked_tokens: int = 0
    vllm_tokens: int = 0
    host_tokens: int = 0
    storage_tokens: int = 0
    saved_pages: int = 0
    unsaved_pages: int = 0
    failed_loads: int = 0
    failed_saves: int = 0
    waits: int = 0
    waited_s: float = 0.0

    def add(self, more: Mapping[str, int]) -> None:
        for name, number in more.items():
            setattr(self, name, getattr(self, name) + number)

    @property
    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)
