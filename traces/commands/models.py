"""`hicache models`: the described models, or the pools of some of them and how ranks share them."""

from dataclasses import asdict, dataclass

import hicache.models as models
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from sim.times.base import Parallelism, check_ranks

from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import write_json
from ..terminal.tables import console, table

_PAGE_SIZE = 256  # every compression ratio in use divides it
_LONGEST_NAME = 24
_POOLS = ("pool", "kind", "dtype", "follows", "layers", "row", "page")
TOTALS = ("model", "family", "layers", "bytes a token", "weights, GB", "page of a replay")


@dataclass(frozen=True)
class Options(OptionRecord):
    names: tuple[str, ...] = option(
        "models, or config.json files (default: all, without their pools)",
        str,
        "NAME",
        positional=True,
        optional=True,
        several=True,
        default=(),
    )
    json: bool = option("print one JSON document", default=False)
    tp: int = option("number of ranks that share each layer", *read.COUNT, default=1)
    pp: int = option("number of pipeline stages that share the layers", *read.COUNT, default=1)
    page_size: int = option("tokens per page", *read.TOKENS, default=_PAGE_SIZE)


def run(options: Options, command: str) -> int:
    """Returns the exit code. Raises CallerError for a name or size that does not fit."""
    chosen = [models.get(name) for name in options.names or models.names()]
    documents = [_document(model, options) for model in chosen]
    if options.json:
        write_json("-", {"models": documents})
        return 0
    out = console()
    shown = table(f"Models at TP {options.tp}", *TOTALS)
    for column in shown.columns[:2]:  # a name is whole, to be copied, unless it takes all room
        column.no_wrap = all(len(model.name) <= _LONGEST_NAME for model in chosen)
    shown.columns[3].width, shown.columns[5].width = 9, 8  # leaves room for a type of weights
    for model in chosen:
        shown.add_row(*totals(model, options.tp))
    out.print(shown)
    for model in chosen if options.names else ():
        shown = table(f"{model.name}: bytes of one rank, pages of {options.page_size}", *_POOLS)
        for pool in model.pools:
            row, page = pool.row_bytes(options.tp), pool.page_bytes(options.page_size, options.tp)
            cells = pool.kind, pool.dtype, pool.anchor or pool.component, str(len(pool.layers))
            shown.add_row(pool.name, *cells, f"{row:,}", f"{page:,}")
        out.print(shown)
        out.print(f"Source: {model.source}.")
    return 0


def totals(model: ModelDescription, tp: int) -> tuple[str, ...]:
    """The cells under TOTALS; bytes of a token are those of all stages."""
    return (
        model.name,
        model.family,
        str(model.layers),
        f"{model.bytes_per_token(tp):,}",
        f"{model.weight_bytes / 1e9:,.1f} ({model.weight_dtype})",
        str(model.page_size),
    )


def _document(model: ModelDescription, options: Options) -> dict[str, object]:
    tp, pp, page_size = options.tp, options.pp, options.page_size
    check_ranks(model, Parallelism(tp, pp))
    try:
        stages = [
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
            for stage in model.stages(pp)
        ]
    except CallerError as error:
        raise CallerError(f"{error} (model {model.name})") from None
    shape = {"page_size": page_size, "tp": tp, "pp": pp}
    result = shape | {"bytes_per_token": model.bytes_per_token(tp), "stages": stages}
    return {**result, "model": asdict(model)}
