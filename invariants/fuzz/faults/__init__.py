"""The atlas of faults: one file per kind, or per table of kinds that differ in a number, found by
name. Every one is recoverable by design: a miss is legal, a wrong byte and a hang never are."""
