"""How far the ordinary suite repeats what it checks; ``make thorough`` repeats in full."""

import os

THOROUGH = bool(os.environ.get("EUNOMIA_THOROUGH"))
"""Whether tests repeat in full."""
PART = 5


def examples(full: int, least: int = 5) -> int:
    """Return how many random examples a test draws: ``full`` of them where tests are thorough, else a fifth."""
    return full if THOROUGH else min(full, max(least, full // PART))
