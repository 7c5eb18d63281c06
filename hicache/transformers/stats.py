"""What a cache has done so far, in numbers, and as a small table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hicache.storage.base import Losses

TIERS = ("device", "host", "disk")
_LEAST_TOKENS = 32  # a pass of fewer says little about what a token costs


@dataclass(slots=True)
class Stats:
    """requests: calls of `generate`. uncached: of them, those that got no pages. unkept: those
    whose rows were not kept, since the model was changed before they ended. hits: reused
    prompt tokens by tier. computed_tokens, prompt_tokens: of prompts. waited_s: seconds that
    requests with hits waited for storage and loads. bytes: in use on each tier; on disk, all that
    the store has. evicted: pages that made room for others, by tier; on disk since this cache was
    made, whoever made them. unstored_tokens: in memory, and not known to be stored. losses: what
    the store did not do. timed_tokens, timed_s: computed prompt tokens that tell what a token
    costs."""

    requests: int = 0
    uncached: int = 0
    unkept: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    waited_s: float = 0.0
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    evicted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TIERS, 0))
    unstored_tokens: int = 0
    losses: Losses = field(default_factory=Losses)
    timed_tokens: int = 0
    timed_s: float = 0.0

    @property
    def saved_tokens(self) -> int:
        """Prompt tokens that were not computed."""
        return sum(self.hits.values())

    @property
    def saved_s(self) -> float:
        """An estimate: the saved tokens, each as long as a computed prompt token took on average,
        less what was waited for. 0 as long as no prompt was computed that tells."""
        if not self.timed_tokens:
            return 0.0
        return max(0.0, self.saved_tokens * self.timed_s / self.timed_tokens - self.waited_s)

    def note_pass(self, tokens: int, seconds: float) -> None:
        """Prompt tokens that were computed in one request, and how long it took."""
        if tokens >= _LEAST_TOKENS:
            self.timed_tokens += tokens
            self.timed_s += seconds

    def take_back(self, hits: dict[str, int]) -> None:
        """Count tokens as computed that were counted as reused, because a load has failed."""
        for tier, found in hits.items():
            self.hits[tier] -= found
            self.computed_tokens += found

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "saved_tokens": self.saved_tokens, "saved_s": self.saved_s}

    def __str__(self) -> str:
        share = self.saved_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        rows = [
            ("requests", f"{self.requests:,}", ""),
            ("prompt tokens", f"{self.prompt_tokens:,}", ""),
            *((f"hits, {tier}", f"{self.hits[tier]:,}", self._in_use(tier)) for tier in TIERS),
            ("tokens computed", f"{self.computed_tokens:,}", ""),
            ("tokens saved", f"{self.saved_tokens:,}", f"{share:.1%}"),
            ("seconds saved", f"{self.saved_s:,.3f}", "estimated"),
            *self._lost(),
        ]
        return "\n".join(f"{name:<16}{value:>12}  {note}".rstrip() for name, value, note in rows)

    def _lost(self) -> list[tuple[str, str, str]]:
        """What went wrong, if anything did."""
        rows = [
            *((f"evicted, {tier}", self.evicted[tier], "pages") for tier in TIERS),
            ("tokens unstored", self.unstored_tokens, "in memory alone"),
            ("writes refused", self.losses.writes_refused, "values that the store did not take"),
            ("reads failed", self.losses.reads_failed, "values"),
            ("reads corrupt", self.losses.reads_corrupt, "values, computed again"),
            ("outages", self.losses.outages, "of the store"),
            ("requests unkept", self.unkept, "the model changed meanwhile"),
        ]
        return [(name, f"{count:,}", note) for name, count, note in rows if count]

    def _in_use(self, tier: str) -> str:
        return f"{self.bytes[tier] / 1e6:,.1f} MB in use"
