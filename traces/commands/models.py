"""`hicache models`: the described models, the size of each pool, and how ranks share it.

Prints tables for people, JSON for scripts, and the Markdown of docs/models.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import hicache.models as models
from hicache.core.errors import CallerError
from hicache.models import ModelDescription, PoolDescription
from sim.times.base import Parallelism, check_ranks

from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import write_json, write_whole
from ..terminal.tables import console, table

# every compression ratio in use divides this page size
_PAGE_SIZE = 256
_HEADINGS = ("pool", "kind", "dtype", "follows", "layers", "row", "token", "page", "TP")
_INTRODUCTION = """\
# Models

The models that `--model` takes: what a token costs and which pools there are. `hicache models NAME`
prints the pools and the source of the figures, and `--json` also the matrices of the layers. The
sources were read in public copies (serving engines, converters, articles), not on the vendor's own
page; figures that no copy confirmed are marked there. This page is the output of
`hicache models --markdown`; a test compares both.

Bytes a token are those of all pools on one rank at TP {tp}. Weights are all of them, in
the type named: bf16, fp8 (a scale per tensor), fp8-block (a scale for 128 x 128), int4, mxfp4 or
nvfp4; routers, norms and embeddings are bf16. How fast each type multiplies says
[times](times.md#the-roofline).

"""


@dataclass(frozen=True)
class Options(OptionRecord):
    names: tuple[str, ...] = option(
        "models, or JSON files that describe models (default: all)",
        str,
        "NAME",
        positional=True,
        optional=True,
        several=True,
        default=(),
    )
    json: bool = option("print one JSON document", excludes="form", default=False)
    markdown: bool = option("print the page docs/models.md", excludes="form", default=False)
    tp: int = option("number of ranks that share each layer", *read.COUNT, default=1)
    pp: int = option("number of pipeline stages that share the layers", *read.COUNT, default=1)
    page_size: int = option("tokens per page", *read.TOKENS, default=_PAGE_SIZE)


def run(options: Options, command: str) -> int:
    """Returns the exit code. Raises CallerError for a name or size that does not fit."""
    chosen = [models.get(name) for name in options.names or models.names()]
    shape = (options.page_size, options.tp, options.pp)
    for model in chosen:
        check_ranks(model, Parallelism(options.tp, options.pp))
        rows(model, *shape)  # raises before anything is printed
    if options.json:
        write_json("-", {"models": [_document(model, *shape) for model in chosen]})
    elif options.markdown:
        write_whole("-", markdown(chosen, options.tp))
    else:
        _print(chosen, *shape)
    return 0


def rows(model: ModelDescription, page_size: int, tp: int, pp: int) -> list[tuple[str, ...]]:
    """The cells of each pool, in the model's order, on a rank of the stage that has most of its
    layers. Raises CallerError for sizes that do not fit."""
    try:
        stages = zip(*(stage.pools for stage in model.stages(pp)), strict=True)
        return [_cells(shards, page_size, tp) for shards in stages]
    except CallerError as error:
        raise CallerError(f"{error} (model {model.name})") from None


def _cells(shards: tuple[PoolDescription, ...], page_size: int, tp: int) -> tuple[str, ...]:
    """shards: the same pool on each pipeline stage."""
    pool = max(shards, key=lambda shard: len(shard.layers))
    is_logical, parts = pool.kind == "logical", min(tp, pool.heads)
    return (
        pool.name,
        pool.kind,
        "-" if is_logical else pool.dtype,
        pool.anchor or pool.component,
        "+".join(str(len(shard.layers)) for shard in shards),
        f"{pool.row_bytes(tp):,}",
        _token_bytes(pool, tp),
        f"{pool.page_bytes(page_size, tp):,}",
        "-" if is_logical else "whole" if parts == 1 else f"1/{parts}",
    )


def markdown(chosen: Iterable[ModelDescription], tp: int) -> Iterator[str]:
    """Yields the text of docs/models.md."""
    described = list(chosen)
    yield _INTRODUCTION.format(tp=tp)
    yield _line(("model", "family", "layers", "bytes a token", "weights, GB", "page of a replay"))
    yield _line(("---", "---", "---:", "---:", "---:", "---:"))
    for model in described:
        yield _line(_totals(model, tp))


def _totals(model: ModelDescription, tp: int) -> tuple[str, ...]:
    return (
        model.name,
        model.family,
        str(model.layers),
        f"{model.bytes_per_token(tp):,}",
        f"{model.weight_bytes / 1e9:,.1f} ({model.weight_dtype})",
        str(model.page_size),
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _print(chosen: list[ModelDescription], page_size: int, tp: int, pp: int) -> None:
    out = console(sys.stdout)
    out.print(
        f"Bytes of one rank at TP {tp}, PP {pp}. A page of the tables has {page_size} tokens."
    )
    for model in chosen:
        pools = rows(model, page_size, tp, pp)
        result = table(model.name, *_HEADINGS)
        result.padding = (0, 0)
        for column in result.columns[1:4]:
            column.justify = "left"
        for row in pools:
            result.add_row(*row)
        out.print(result)
        out.print(f"{_headline(model, tp)}\nSource: {model.source}.")


def _headline(model: ModelDescription, tp: int) -> str:
    return (
        f"Family {model.family}, {model.layers} layers; "
        f"{model.bytes_per_token(tp):,} bytes a token at TP {tp} over all stages; "
        f"weights {model.weight_bytes / 1e9:,.1f} GB in all ({model.weight_dtype}). "
        f"A replay has pages of {model.page_size} tokens unless --page-size is given."
    )


def _token_bytes(pool: PoolDescription, tp: int) -> str:
    """Bytes of one token, "-" if the pool does not grow with tokens."""
    size = pool.token_bytes(tp)
    if pool.page_rows or pool.kind == "logical":
        return "-"
    whole, rest = divmod(size, 1)
    return f"{whole:,}" if not rest else f"{float(size):,.4f}".rstrip("0")


def _document(model: ModelDescription, page_size: int, tp: int, pp: int) -> dict[str, object]:
    stages = model.stages(pp)
    return {
        "page_size": page_size,
        "tp": tp,
        "pp": pp,
        "bytes_per_token": model.bytes_per_token(tp),
        "stages": [
            {
                "bytes_per_page": {
                    name: stage.bytes_per_page(name, page_size, tp) for name in stage.components
                },
                "pools": {
                    pool.name: {
                        "layers": list(pool.layers),
                        "row_bytes": pool.row_bytes(tp),
                        "copies": pool.copies(tp),
                        "rows_per_page": pool.rows_per_page(page_size),
                        "page_bytes": pool.page_bytes(page_size, tp),
                        "trailing_pages": pool.trailing_pages(page_size),
                    }
                    for pool in stage.pools
                },
            }
            for stage in stages
        ],
        "model": models.as_document(model),
    }
