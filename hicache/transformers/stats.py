"""What a cache has done so far, in numbers, and as a small table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hicache.storage.base import Losses

TIERS = ("device", "host", "disk")


@dataclass(slots=True)
class Stats:
    """requests: calls of `generate`. uncached: of them, those that got no pages. unkept: those
    whose rows were not kept, since the model was changed before they ended. hits: reused
    prompt tokens by tier. computed_tokens, prompt_tokens: of prompts. waited_s: seconds that
    requests with hits waited for storage and loads. bytes: in use on each tier; on disk, all that
    the store has. unstored_tokens: in memory, and not known to be stored. losses: what
    the store did not do."""

    requests: int = 0
    uncached: int = 0
    unkept: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    waited_s: float = 0.0
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    unstored_tokens: int = 0
    losses: Losses = field(default_factory=Losses)

    @property
    def saved_tokens(self) -> int:
        """Prompt tokens that were not computed."""
        return sum(self.hits.values())

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "saved_tokens": self.saved_tokens}

    def __str__(self) -> str:
        share = self.saved_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        rows = [
            ("requests", f"{self.requests:,}", ""),
            ("prompt tokens", f"{self.prompt_tokens:,}", ""),
            *((f"hits, {one}", f"{self.hits[one]:,}", self._in_use(one)) for one in TIERS),
            ("tokens computed", f"{self.computed_tokens:,}", ""),
            ("tokens saved", f"{self.saved_tokens:,}", f"{share:.1%}"),
        ]
        lost = {"tokens unstored": self.unstored_tokens, "requests unkept": self.unkept}
        lost |= {name.replace("_", " "): count for name, count in asdict(self.losses).items()}
        rows += [(name, f"{count:,.0f}", "") for name, count in lost.items() if count]
        return "\n".join(f"{name:<16}{value:>12}  {note}".rstrip() for name, value, note in rows)

    def _in_use(self, tier: str) -> str:
        return f"{self.bytes[tier] / 1e6:,.1f} MB in use"
