"""Exit codes by which a process reports to its supervisor why it ended."""

from typing import Final

BAD_INPUT: Final = 2
"""The input is invalid, so that a restart would change nothing."""
REMOVED: Final = 5
"""Exit code of a launcher whose node the operator has removed: its containers have ended, and no restart follows."""
NOT_STARTED: Final = 126
"""The process could not be started."""
