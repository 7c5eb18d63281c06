"""The contract of a prefetch policy."""

from __future__ import annotations

from hicache.core.prefetch_policies.base import PrefetchPolicy


def wrong(policy: PrefetchPolicy) -> str:
    """Returns the error of a policy as "expected ..., found ...", or "" if there is none."""
    name = getattr(policy, "name", None)
    if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
        return f"expected name, a word in lower case, found {name!r}"
    for flag in ("waits", "limited"):
        if not isinstance(getattr(policy, flag, None), bool):
            return f"expected {flag}, True or False, found {getattr(policy, flag, None)!r}"
    if policy.limited and not policy.waits:
        return "expected limited to be False without waits: there is no wait to limit"
    return ""
