"""The tables of the index of a file store.

meta      one row: the number that was given last, to a store or a use of a value
segments  the files of slots, and when a value of each was last used
slots     free (no key, no owner), reserved by an open store (an owner), or stored (a key)
totals    what became of values since the folder was made: evicted, lost
"""

from __future__ import annotations

import sqlite3

VERSION = 1
NOW = "CAST(strftime('%s', 'now') AS INTEGER)"  # the store's own clock, for ages of entries
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS meta (tick INTEGER NOT NULL);
INSERT INTO meta SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM meta);
CREATE TABLE IF NOT EXISTS segments (
  id INTEGER PRIMARY KEY AUTOINCREMENT, slot_bytes INTEGER NOT NULL, slots INTEGER NOT NULL,
  used INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS slots (
  segment INTEGER NOT NULL, slot INTEGER NOT NULL, slot_bytes INTEGER NOT NULL, key TEXT,
  family INTEGER, length INTEGER, generation INTEGER, used INTEGER, used_at INTEGER, owner INTEGER,
  PRIMARY KEY (segment, slot)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS by_key ON slots (key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_use ON slots (slot_bytes, used) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_family ON slots (family) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS reserved ON slots (owner) WHERE owner IS NOT NULL;
CREATE INDEX IF NOT EXISTS free ON slots (slot_bytes) WHERE key IS NULL AND owner IS NULL;
CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
COMMIT;
"""


def create(base: sqlite3.Connection) -> None:
    """Make the tables, if they are not there."""
    base.executescript(_SCHEMA)
