"""Turn a model with full attention only into an invented hybrid model of the same size.

It is for replays that use a component without a real hybrid model, such as
`hicache replay --components full,swa`. This file assigns the layers and sizes the pools. Real
hybrid models are in the files of their families.
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
    """The model with its layers assigned to the components in turn. The first component gets the
    last layer of each round.

    window, interval: in tokens. A window layer has the same rows as the full layer before. A linear
    layer has a matrix of value x value elements per attention head in fp32, as in Gated DeltaNet.
    Raises CallerError for a component without a window or a state, and for a model that is a hybrid
    already.
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
        pool = replace(kv, name=name, component=name, layers=layers[name])
        pools.append(maker(model, pool, window, interval))
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
