"""What Synergy's stages read, on machines with CPUs and memory, of jobs measured with several amounts of both."""

from collections.abc import Mapping

from eunomia import Stage
from mutations.worlds import sensitive_world

WORLD = sensitive_world

READS: Mapping[tuple[str, Stage], set[str]] = {
    # A demand follows from the ratio of rates, which a slower curve keeps; the order is handed on.
    ("sensitivity", Stage.REFINE): {"sizes", "cpus", "order", "amounts"},
    ("synergy_greedy", Stage.PLACEMENT): {"order", "amounts", "ranges"},
    # The work that is left follows from rates; a job that fits no machine alone comes in its turn.
    ("tetris", Stage.PLACEMENT): {"rates", "order", "amounts", "ranges"},
    ("synergy_tune", Stage.PLACEMENT): {"order", "amounts", "ranges"},
    ("synergy_opt", Stage.REFINE): {"sizes", "cpus", "order", "amounts"},
    ("synergy_arranged", Stage.PLACEMENT): {"order", "amounts", "ranges"},
}

COMPANIONS: Mapping[str, Mapping[str, object]] = {
    name: {"stages.refiners": ["sensitivity"], "stages.valuation": "fifo"}
    for name in ("sensitivity", "synergy_arranged", "synergy_greedy", "synergy_tune", "tetris")
} | {"synergy_opt": {"stages.refiners": ["synergy_opt"], "stages.valuation": "fifo"}}
