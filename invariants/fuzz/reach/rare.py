"""Expected names (see expected.py) that are hardly ever reached with exactly these components.

Measured in 20,000 sequences (rates.json). Does not list names that are expected nowhere.
"""

from __future__ import annotations

# Names reached by fewer than eight in 5,000 runs with exactly these components.
RARE_WITH: dict[tuple[str, ...], tuple[str, ...]] = {
    ("full",): ("Backup: a rank is ahead by 4",),
    (
        "full",
        "mamba",
    ): (
        "mamba demoted from device by ContinueWanted",
        "mamba lost from device by ContinueWanted",
        "mamba lost from host by ContinueWanted",
        "Load of full by AdmitWanted",
        "BackupDone: failed on every rank",
        "Load: a rank is ahead by 2",
        "Backup: a rank is ahead by 4",
    ),
    (
        "full",
        "swa",
    ): (
        "swa demoted from device by PrefillDone",
        "swa lost from device by Finished",
        "Load of full by AdmitWanted",
    ),
    (
        "full",
        "swa",
        "mamba",
    ): (
        "Backup of full+mamba by PagesWanted",
        "Load of full by AdmitWanted",
        "three loads at once",
        "Load: a rank is ahead by 2",
        "Backup: a rank is ahead by 4",
        "Load of full+mamba by AdmitWanted",
        "Load of full+swa by AdmitWanted",
    ),
}
