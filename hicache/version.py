"""The version of the project; pyproject.toml reads it from here."""

VERSION = "0.1.0"
