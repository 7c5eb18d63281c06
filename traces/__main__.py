"""`python -m traces` is `hicache`."""

from traces.cli import main

raise SystemExit(main())
