"""Column names of plugins' records in result tables."""

from collections.abc import Mapping
from typing import Final

COLUMNS: Final[Mapping[str, str]] = {
    "app": "app", "bid": "bidder", "rho_now": "rho_now", "gpus_least": "asked_least", "rho_least": "rho_least",
    "gain": "gain", "gpus_won": "won_slots", "rho_won": "rho_won", "kept": "c", "gpus_kept": "kept_slots",
    "gpus_left_over": "leftover_slots", "bid_table": "bid_rows", "gpus_offered": "offered_slots",
    "bidders": "bidders", "apps_active": "apps", "method": "solved_by", "gap": "gap",
}  # fmt: skip
"""Names in results by name in an auction's record; columns of other records keep their names."""
