"""The order of eviction that a policy declares, with which its `rank` is compared."""

from collections.abc import Callable, Sequence

from hicache.core.eviction_policies import EvictionPolicy, Facts, Term

Key = tuple[int, ...]


def key_of_facts(policy: EvictionPolicy) -> Callable[[Facts], Key] | None:
    """Returns the key of the policy's order, or None if it declares no order."""
    reference: Callable[[Facts], Sequence[int]] | None = getattr(policy, "reference", None)
    if reference is not None:
        return lambda facts: tuple(reference(facts))
    order: tuple[Term, ...] = getattr(policy, "order", ())
    terms = tuple((Facts._fields.index(term.fact), term.most) for term in order)
    if not terms:
        return None
    return lambda facts: tuple([min(facts[at], most) for at, most in terms])
