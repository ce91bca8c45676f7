"""Values at the edges of what a field may hold, and names that mean something."""

import math
from typing import Final

WITNESS: Final = "witness"
ATTACKERS: Final = 48
NAMES: Final = (
    "",
    WITNESS,
    f"{WITNESS}/1",
    "app-0",
    "app-0/1",
    "app-1/2",
    "app-1/3",
    "/",
    "app-0/../witness/1",
    "app-0/00001",
    "cpu",
    "box7",
    "x" * 600,
    "\x00",
    "\N{SNOWMAN}/1",
    "{}",
    '{"is": "Scores", "score": {"array": "<f8", "of": [1, 2]}}',
    '{"is": "ByBundle"}',
    "[" * 5000,
)
WHOLE: Final = (0, 1, -1, 2, 3, 4, 7, 8, 64, 100, 10_000, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63))
REAL: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-9, 5e-324, 1e9, 1e15, 1e16, 1e308, -1e308, math.inf, -math.inf, math.nan)
