"""What the scheduler's half of the connector counts, since the engine began."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counts:
    """requests: admissions by vLLM, also those after a preemption. asked_tokens: of their prompts.
    vllm_tokens: of hits that end in this cache, what vLLM had itself. host_tokens, storage_tokens:
    loaded, by the tier that had them. saved_pages: given to the core. unsaved_pages: for which it
    had no room. failed_loads, failed_saves. waits: requests that waited for storage, together
    waited_s seconds."""

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

    @property
    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)
