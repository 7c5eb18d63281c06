"""The longest wait for another process or thread. A test that needs it has failed.

Below `faulthandler_timeout` in pyproject.toml, which ends a test that waits without a limit.
"""

PATIENCE_S = 120.0
