"""`python -m traces` runs the `hicache` command."""

from traces.cli import main

raise SystemExit(main())
