"""`hicache convert`: writes a trace of any format as a native one, or lists the formats."""

from dataclasses import dataclass

from hicache.core.errors import CallerError

from ..formats import FORMATS, native
from ..replaying.options import TRACE_HELP, TraceOptions
from ..terminal import options as read
from ..terminal.options import option
from ..terminal.output import check_outputs, write_whole
from ..terminal.streams import print_error
from ..terminal.tables import console, pairs


@dataclass(frozen=True)
class Options(TraceOptions):
    trace: str | None = option(  # type: ignore[assignment]
        TRACE_HELP, read.name, "TRACE", positional=True, optional=True
    )
    output: str | None = option(
        "write here; a name that ends in .gz or .zst is packed; - is stdout",
        *read.OUTPUT,
        short="-o",
    )
    formats: bool = option("list the formats and end", default=False)


def run(options: Options, command: str) -> int:
    if options.formats:
        rows = [(name, item.summary) for name, item in FORMATS.items()]
        console().print(pairs("Formats (--format; found by the first line)", rows))
        return 0
    if options.trace is None or options.output is None:
        raise CallerError("convert: expected TRACE and --output FILE; name what to read and write")
    check_outputs({"trace": options.trace, "tokenizer": options.tokenizer}, output=options.output)
    trace = options.opened()
    made_by = {"command": "hicache convert", "source": options.trace}
    log = {"columns": options.columns, "rows": options.rows}
    made_by |= {name: value for name, value in log.items() if value is not None}
    write_whole(options.output, native.texts(trace, made_by))
    for note in trace.notes:
        print_error(f"note: {note}")
    return 0
