"""What the baselines' stages read; they have no folder of their own."""

from collections.abc import Mapping

from eunomia import Stage

READS: Mapping[tuple[str, Stage], set[str]] = {
    # Remaining time is work over the rate of the largest size.
    ("srtf", Stage.VALUATION): {"rates", "regimes"},
    # Times that size.
    ("srsf", Stage.VALUATION): {"rates", "sizes", "regimes"},
    ("themis_rho", Stage.VALUATION): {"rates", "regimes"},
    # Sizes matter to the length of the path alone, which is the longest job's here.
    ("index_rule", Stage.VALUATION): {"rates", "regimes"},
    ("laxity", Stage.VALUATION): {"rates", "regimes"},
    # What is on the menu, and what it is worth.
    ("marginal_gain", Stage.ALLOCATION): {"sizes", "values"},
    # Rates matter where they were measured apart and near.
    ("gandiva", Stage.ALLOCATION): {"sizes", "values"},
    # Sizes decide what fits, the order decides which job is first; rates have no effect without backfilling.
    ("ordered", Stage.ALLOCATION): {"sizes", "values"},
    ("max_min", Stage.ALLOCATION): {"sizes", "values"},
    ("max_min_time", Stage.ALLOCATION): {"sizes", "values"},
    # Shares of users do not depend on an order: it takes none.
    ("max_min_users", Stage.ALLOCATION): {"sizes"},
    ("drf", Stage.ALLOCATION): {"sizes", "values"},
    ("isolated", Stage.ALLOCATION): {"sizes", "values"},
    # The order of an allocation breaks ties between jobs of one priority.
    ("time_sharing", Stage.REFINE): {"sizes", "order", "amounts"},
    # The claim furthest behind comes first, whatever the order of the shares.
    ("rounding", Stage.REFINE): {"sizes", "amounts"},
    ("divide", Stage.REFINE): {"sizes", "order", "amounts"},
    # Sizes below a machine's and whole machines; the largest is placed first, whatever the order.
    ("network_packing", Stage.REFINE): {"sizes", "order", "amounts"},
    # Menus matter to a placement where a job cannot grow: it stays if it can run at the size that it has.
    ("packed", Stage.PLACEMENT): {"sizes", "order", "amounts"},
    ("spread", Stage.PLACEMENT): {"sizes", "order", "amounts"},
    ("random", Stage.PLACEMENT): {"sizes", "order", "amounts"},
    ("reuse", Stage.PLACEMENT): {"sizes", "order", "amounts"},
    ("consolidated", Stage.PLACEMENT): {"sizes", "order", "amounts"},
}

VARIANTS: Mapping[str, tuple[str, Stage, Mapping[str, object], set[str]]] = {
    "backfilling": ("ordered", Stage.ALLOCATION, {"plugins.ordered.on_misfit": "easy"}, {"sizes", "rates", "values"}),
    "booking": (
        "ordered",
        Stage.ALLOCATION,
        {"plugins.ordered.on_misfit": "conservative"},
        {"sizes", "rates", "values"},
    ),
}
"""Options that make a stage depend on more inputs."""

COMPANIONS: Mapping[str, Mapping[str, object]] = {
    "divide": {
        "stages.elasticity": "range",
        "stages.valuation": "themis",
        "stages.allocation": "themis",
        "stages.refiners": ["divide"],
    },
    "random": {"stages.valuation": "fifo"},
    "app_order": {"plugins.app_order.by": "remaining_service"},
    "marginal_gain": {
        "stages.elasticity": "range",
        "stages.valuation": "slaq",
        "stages.allocation": "marginal_gain",
        "plugins.slaq.starve": True,
        "plugins.slaq.epoch": "5s",
    },
}
"""Stages that give a plugin something to do, where the smallest profile that loads would not."""
