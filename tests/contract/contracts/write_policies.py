"""The contract of a write policy."""

from __future__ import annotations

from hicache.core.write_policies.base import WritePolicy


def wrong(policy: WritePolicy) -> str:
    """Returns the error of a policy as "expected ..., found ...", or "" if there is none."""
    name, threshold = getattr(policy, "name", None), getattr(policy, "threshold", None)
    if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
        return f"expected name, a word in lower case, found {name!r}"
    if type(threshold) is not int or threshold < 0:
        return f"expected threshold, a number of uses from 0 up, found {threshold!r}"
    for flag in ("on_evict", "contiguous"):
        if not isinstance(getattr(policy, flag, None), bool):
            return f"expected {flag}, True or False, found {getattr(policy, flag, None)!r}"
    if policy.on_evict and policy.contiguous:
        return "expected contiguous to be False with on_evict, which backs up leaves first"
    return ""
