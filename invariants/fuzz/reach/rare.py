"""Expected names (see expected.py and lives.py) that are hardly ever reached with exactly these
components.

Measured in 20,000 sequences, and again in 5,000 (rates.json). Does not list names that are expected
nowhere.
"""

from __future__ import annotations

# Names reached by fewer than eight in 5,000 runs with exactly these components.
RARE_WITH: dict[tuple[str, ...], tuple[str, ...]] = {
    ("full",): (
        "Backup: a rank is ahead by 4",
        "aborted between chunks in its load and a backup, then flush",
        "aborted decoding in its load and a backup, then growth",
        "retracted between chunks in its load and a backup, then flush",
        "retracted between chunks in its load and a backup, then growth",
        "retracted decoding in its load and a backup, then device eviction",
        "retracted decoding in its load and a backup, then host eviction",
        "retracted decoding in its load and a backup, then flush",
    ),
    ("full", "mamba"): (
        "mamba demoted from device by ContinueWanted",
        "mamba lost from device by ContinueWanted",
        "mamba lost from host by ContinueWanted",
        "Load of full by AdmitWanted",
        "BackupDone: failed on every rank",
        "Load: a rank is ahead by 2",
        "Backup: a rank is ahead by 4",
        "aborted in its pass after its load, then flush",
        "aborted between chunks in its load, then flush",
        "aborted between chunks in its load and a backup, then host eviction",
        "aborted between chunks in its load and a backup, then flush",
        "aborted between chunks in its load and a backup, then growth",
        "aborted decoding in its load and a backup, then flush",
        "aborted decoding in its load and a backup, then growth",
        "finished decoding in its load and a backup, then growth",
        "retracted between chunks in its load and a backup, then flush",
        "retracted between chunks in its load and a backup, then growth",
        "retracted decoding in its load and a backup, then flush",
        "retracted decoding in its load and a backup, then growth",
        "restarted by its pass in its pass after its load, then flush",
    ),
    ("full", "swa"): (
        "swa demoted from device by PrefillDone",
        "swa lost from device by Finished",
        "Load of full by AdmitWanted",
        "aborted waiting for the load of another, then growth",
        "aborted between chunks in its load, then growth",
        "aborted between chunks in its load and a backup, then flush",
        "aborted between chunks in its load and a backup, then growth",
        "retracted between chunks in its load and a backup, then flush",
        "retracted between chunks in its load and a backup, then growth",
        "retracted decoding in its load and a backup, then flush",
    ),
    ("full", "swa", "mamba"): (
        "Backup of full+mamba by PagesWanted",
        "Load of full by AdmitWanted",
        "three loads at once",
        "Load: a rank is ahead by 2",
        "Backup: a rank is ahead by 4",
        "Load of full+mamba by AdmitWanted",
        "Load of full+swa by AdmitWanted",
        "Backup of full+swa by ContinueWanted",
        "swa lost from device by Finished",
        "aborted waiting for the load of another, then growth",
        "aborted in its pass after its load, then flush",
        "aborted between chunks in its load and a backup, then flush",
        "aborted between chunks in its load and a backup, then growth",
        "aborted decoding in its load, then growth",
        "aborted decoding in its load and a backup, then flush",
        "aborted decoding in its load and a backup, then growth",
        "retracted between chunks in its load and a backup, then flush",
        "retracted between chunks in its load and a backup, then growth",
        "retracted decoding in its load, then flush",
        "retracted decoding in its load and a backup, then growth",
    ),
}
