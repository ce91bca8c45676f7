"""Exit codes by which the processes of a machine say to their supervisor why they ended."""

from typing import Final

BAD_INPUT: Final = 2
"""A restart changes nothing."""
REMOVED: Final = 5
"""A launcher's, whose node the operator has removed: what ran there has ended, and the arbiter goes on without it."""
NOT_STARTED: Final = 126
"""The process could not be started."""
