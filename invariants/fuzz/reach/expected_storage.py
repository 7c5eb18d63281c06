"""Names of states of storage that a run of many sequences must reach; see `expected`.

Measured in 178 sequences with a storage, about 45 for each set of components (2026-11-22). Rates
for shorter runs come from `rates`.
"""

from __future__ import annotations

from .expected import Row

ROWS: tuple[Row, ...] = (
    (
        "any",
        "Aborted AdmitWanted Arrived BackupDone ContinueWanted DetachWanted EvictWanted Finished "
        "Flushed LoadDone LookupDone MatchWanted PagesWanted PrefetchLimitReached PrefillDone "
        "Retracted StorageAttached StoreDone",
        (
            "{} while a lookup is under way",
            "{} while a store is under way",
        ),
    ),
    (
        "any",
        "Aborted AdmitWanted Arrived BackupDone EvictWanted FetchDone LoadDone MatchWanted "
        "PrefetchLimitReached PrefillDone StorageAttached StoreDone",
        ("{} while a fetch is under way",),
    ),
    (
        "any",
        "DetachWanted FetchDone LookupDone PrefetchLimitReached StorageAttached StoreDone",
        (
            "{}",
            "{} while a backup is under way",
            "{} while a prefill is under way",
        ),
    ),
    (
        "any",
        "FetchDone LookupDone StoreDone",
        (
            "{} of all",
            "{} of nothing",
            "{} of an abandoned flight",
        ),
    ),
    (
        "any",
        "Aborted AdmitWanted DetachWanted Flushed PrefetchLimitReached",
        ("abandoned lookup by {}",),
    ),
    (
        "any",
        "DetachWanted LookupDone StoreDone",
        ("StorageDetached by {}",),
    ),
    (
        "any",
        "aborted admitted finished retracted",
        ("refused fetching, then {}",),
    ),
    (
        "any",
        "",
        (
            "AdmitWanted refused: fetching of full",
            "StorageAttached refused: detaching of full",
            "Admitted on what was fetched",
            "DeleteDone",
            "DeleteDone while a delete is under way",
            "KvStored of storage",
            "Lookup behind a known prefix",
            "Lookup by Arrived",
            "Lookup by FetchDone",
            "Lookup by LookupDone",
            "LookupDone of part",
            "LookupDone while a delete is under way",
            "Prefetched budget by Arrived",
            "Prefetched detached by DetachWanted",
            "Prefetched flushed by Flushed",
            "Prefetched late by AdmitWanted",
            "Prefetched late by PrefetchLimitReached",
            "Prefetched miss by Arrived",
            "Prefetched miss by FetchDone",
            "Prefetched miss by LookupDone",
            "Prefetched no_host_pages by LookupDone",
            "Prefetched short by FetchDone",
            "Prefetched too_short by Arrived",
            "Prefetched too_short by LookupDone",
            "Prefetched whole by FetchDone",
            "Prefetched whole by LookupDone",
            "Store of full by BackupDone",
            "Store of full by Finished",
            "Store of full by PrefillDone",
            "Store of full by StoreDone",
            "abandoned fetch by AdmitWanted",
            "abandoned store by DetachWanted",
            "abandoned store by Flushed",
            "as many stores as allowed",
            "fetch and load at once",
            "fetch without a request",
            "fetched pages that the tree cannot take",
            "given up after as many tries as allowed",
            "node split while it waits to be stored",
            "nodes wait to be stored",
            "pages are distrusted",
            "retiring: full of host",
            "store of a node that was split",
            "three requests wait for one prefetch",
            "two lookups at once",
            "two requests wait for one prefetch",
            "two stores at once",
        ),
    ),
    (
        "state",
        "",
        (
            "Fetch of mamba",
            "Store of mamba by BackupDone",
            "Store of mamba by StoreDone",
            "Store of full+mamba by BackupDone",
            "retiring: mamba of host",
        ),
    ),
    (
        "window",
        "",
        (
            "Store of swa by BackupDone",
            "Store of swa by PrefillDone",
            "Store of swa by StoreDone",
            "Store of full+swa by BackupDone",
            "Store of full+swa by PrefillDone",
            "Store of full+swa by StoreDone",
            "retiring: swa of host",
        ),
    ),
    (
        "bounded",
        "",
        ("Lookup of pages that the tree has in part",),
    ),
    (
        "both",
        "",
        (
            "Fetch of full+mamba+swa",
            "Fetch of mamba+swa",
            "Store of full+mamba+swa by BackupDone",
            "Store of full+mamba+swa by StoreDone",
            "Store of mamba+swa by BackupDone",
        ),
    ),
)
