"""What a replay by processes tells: a row for each rank, and what their agreement cost."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from ..results.record import Ranks
from ..terminal.tables import pairs, percent, table


def rank_tables(found: Ranks) -> Iterator[Table]:
    """found: of ranks that decided alike."""
    columns = ("d2h", "h2d", "written", "read", "compared", "moving", "agreeing")
    rows = table("Ranks (MB moved, pages compared, seconds)", "", *columns)
    for one in found.ranks:
        moved = (one.d2h_bytes, one.h2d_bytes, one.written_bytes, one.read_bytes)
        sizes = [f"{size / 1e6:,.1f}" for size in moved]
        times = [f"{seconds:,.2f}" for seconds in (one.moving_s, one.agreeing_s)]
        rows.add_row(f"{one.rank}", *sizes, f"{one.compared_pages:,}", *times)
    yield rows
    part, cpu = (percent(one).strip() for one in (found.agreeing_share, found.agreeing_cpu_share))
    rounds = f"{found.collectives:,} in {found.exchanges:,} exchanges"
    work = f"the {found.moving_s:.2f} s of the exchanges' own work"
    yield pairs(
        "Agreement",
        [
            ("digest", f"that of a single process on each of {len(found.ranks)} ranks"),
            ("collectives", f"{rounds}, at most {found.most_collectives} in one"),
            ("time", f"{found.last_agreeing_s:.2f} s, {part} of {work}; of processors {cpu}"),
        ],
    )
