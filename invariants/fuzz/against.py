"""Compares a core with the executable specification while a sequence is played.

Lives here: the observer, and the failure that it raises. Does not decide anything itself; see
`invariants/spec`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core import registry
from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView

from ..books.story import brief, named_by
from ..spec.kinds import WRITES, Writes, is_specified
from ..spec.lockstep import Differs, Lockstep

SPEC = "spec"
AGAINST = (SPEC, "none")
SPEC_KIND = "SPEC "  # how the kinds of these failures begin
SENTENCE = "The core answers each event as the specification does."


class NotSpecifiedError(AssertionError):
    """The core differs from the specification. kind: equal for differences of the same sort. at:
    index of the outcome that differs. expected, found: the outcomes, None where there is none."""

    def __init__(
        self,
        kind: str,
        text: str,
        about: Sequence[About],
        at: int = -1,
        expected: Outcome | None = None,
        found: Outcome | None = None,
    ) -> None:
        super().__init__(f"{kind}: {SENTENCE}\n    {text}")
        self.kind = kind
        self.about = tuple(about)
        self.at = at
        self.expected = expected
        self.found = found


def lockstep_of(config: Config) -> Lockstep | None:
    """A specification to compare a core with; None if the rules do not cover its configuration. Of
    a write policy from outside of the project, they cover what it declares."""
    if not is_specified(config):
        return None
    if config.write_policy in WRITES:
        return Lockstep(config)
    policy = registry.load(registry.WRITE_POLICIES, config.write_policy).policy()
    return Lockstep(config, Writes(policy.threshold, policy.on_evict, not policy.contiguous))


class Against:
    """Observes one core. Raises NotSpecifiedError at the first difference. After each event it also
    counts the free and the available pages of one pool, of each in turn."""

    def __init__(self, config: Config) -> None:
        self.lockstep = lockstep_of(config)

    def on_event(self, event: Event, view: CoreView) -> None:
        """Nothing is compared before the core has answered."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if self.lockstep is None:
            return
        try:
            self.lockstep.compare(event, outcomes)
        except Differs as difference:
            raise _told(event, difference, self.lockstep) from None
        turn, tiers = self.lockstep.events, (Tier.DEVICE, Tier.HOST)
        tier, kind = tiers[turn % 2], turn // 2 % len(view.components)
        pool, cache = view.pool(tier, kind), self.lockstep.specification.cache
        for name, expected, found in (
            ("free", cache.free(tier, kind), pool.free),
            ("available", cache.available(tier, kind), pool.available),
        ):
            if expected != found:
                where = f"{name} {tier.name.lower()} pages of {pool.component}"
                raise NotSpecifiedError(
                    f"{SPEC_KIND}{name} pages",
                    f"{brief(event)}\n    {where}: expected {expected}, found {found}",
                    [*named_by(event), About("pool", -1, int(tier), pool.component)],
                )


def _told(event: Event, difference: Differs, lockstep: Lockstep) -> NotSpecifiedError:
    """The failure, in the core's page and flight numbers."""
    expected, found = lockstep.in_numbers_of_core(difference.expected), difference.found
    whose = expected if expected is not None else found
    kind = "KV events" if whose is None else type(whose).__name__
    lines = [f"{brief(event)}: {difference}"]
    if expected is not None or found is not None:
        lines.append(f"expected {brief(expected) if expected is not None else 'none'}")
        lines.append(f"found    {brief(found) if found is not None else 'none'}")
    about = [one for item in (event, expected, found) if item is not None for one in named_by(item)]
    text = "\n    ".join(lines)
    whom = list(dict.fromkeys(about))
    return NotSpecifiedError(SPEC_KIND + kind, text, whom, difference.at, expected, found)
