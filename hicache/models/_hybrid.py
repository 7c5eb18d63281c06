"""A model of full attention alone, retold as a hybrid of the same size.

For replays that want a component without saying whose: `hicache replay --components full,swa`.
Lives here: which layers become what, and how large their pools are. Must not live here: models that
exist; they have their own pools in their family's file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hicache.core.components.base import residency
from hicache.core.errors import CallerError

from ._pool import PoolDescription
from .base import ModelDescription


def as_hybrid(
    model: ModelDescription, components: Sequence[str], window: int, interval: int
) -> ModelDescription:
    """The model with its layers dealt out to the components in turn, the first getting the last.

    A window layer keeps the rows that the full layer kept; a linear one keeps a matrix of value x
    value elements per attention head in fp32, as Gated DeltaNet does. Raises CallerError for a
    component that is not one of them, or a model that is a hybrid already.
    """
    if len(model.pools) != 1:
        raise CallerError(
            f"model {model.name}: expected one pool to make a hybrid of, found "
            f"{', '.join(pool.name for pool in model.pools)}"
        )
    first, *others = components
    kv = model.pools[0]
    count = len(components)
    layers = {
        name: tuple(n for n in kv.layers if n % count == count - 1 - place)
        for place, name in enumerate(components)
    }
    pools = [replace(kv, component=first, layers=layers[first])]
    for name in others:
        maker = _POOLS.get(residency(name))
        if maker is None:
            raise CallerError(
                f"component: expected one with a window or a state beside {first}, found {name!r}"
            )
        made = replace(kv, name=name, component=name, layers=layers[name])
        pools.append(maker(model, made, window, interval))
    return replace(
        model, name=f"{model.name} as {'+'.join(components)}", family="hybrid", pools=tuple(pools)
    )


def _window(
    model: ModelDescription, pool: PoolDescription, window: int, interval: int
) -> PoolDescription:
    return replace(pool, window=window)


def _state(
    model: ModelDescription, pool: PoolDescription, window: int, interval: int
) -> PoolDescription:
    return replace(
        pool,
        kind="state",
        parts=("state",),
        heads=model.attention_heads,
        head_elements=model.value_elements**2,
        dtype="fp32",
        page_rows=1,
        window=1,
        interval=interval,
    )


_POOLS = {"window": _window, "state": _state}
