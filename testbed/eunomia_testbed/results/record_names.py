"""Names of the columns of plugins' records in results."""

from collections.abc import Mapping
from typing import Final

COLUMNS: Final[Mapping[str, str]] = {
    "app": "app", "bid": "bidder", "rho_now": "rho_now", "gpus_least": "asked_least", "rho_least": "rho_least",
    "gain": "gain", "gpus_won": "won_slots", "rho_won": "rho_won", "kept": "c", "gpus_kept": "kept_slots",
    "gpus_left_over": "leftover_slots", "bid_table": "bid_rows", "gpus_offered": "offered_slots",
    "bidders": "bidders", "apps_active": "apps", "method": "solved_by", "gap": "gap",
}  # fmt: skip
"""Columns of an auction's record as the results name them; another plugin's record keeps its own names."""
