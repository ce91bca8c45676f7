"""The claims as lines on a screen, as plain values, and as what is fixed before anything runs."""

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Sequence

from eunomia_testbed.reproduce.cells import COSTS, POLICIES, Cell, make_cluster
from eunomia_testbed.reproduce.grid import Grid, Runs
from eunomia_testbed.reproduce.verdicts import Claim, Measured, Verdict

Row = tuple[Claim[Runs], Measured]
WIDTH = 118


def fixed_lines(grid: Grid) -> list[str]:
    """What is decided before the first run, for the reader to hold the outcome against."""
    testbed, simulator = make_cluster("testbed"), make_cluster("simulator")
    seeds = ", ".join(map(str, grid.seeds))
    usual = Cell(policy="themis", seed=0)
    text = [
        f"seeds {seeds}; {len(grid.cells())} simulations",
        f"Figures 9 to 14 and Table 5: testbed of {testbed.gpus} GPUs on {len(testbed.machines)} machines in "
        f"{len(testbed.racks)} racks, {grid.testbed_apps} apps of the paper's 85, as densely in time",
        f"Figures 15 to 19: {simulator.gpus} GPUs on {len(simulator.machines)} machines in {len(simulator.racks)} "
        f"racks (footnote 6 adds up to 168, not 256), {grid.simulator_apps} apps of workload 2, as full as the testbed",
        f"lease {usual.lease_seconds / 60:g} min, f {usual.fairness_knob:g}, reports off by up to {usual.error:.0%}; "
        f"a change of GPUs takes {COSTS.start:g} s, a checkpoint {COSTS.checkpoint:g} s (§6.2.3)",
        f"apps have 1/{usual.shorter:g} of Figure 3's GPU time and come {usual.shorter:g} times as densely: they then "
        "last as long, in leases and restarts, as §6.2.3 has them last",
        f"GPUs that become free are pooled for {usual.pooled_seconds:g} s before a round, under every policy",
        "workload 2: a trial can use its most GPUs in every phase, as in the example of §4.3.3",
        "distance slows network-intensive models by 1.1 across machines and 1.3 across racks (footnote 3)",
        "policies: " + ", ".join(f"{name} (preset {preset})" for name, (preset, _) in POLICIES.items()),
    ]
    return [line for part in text for line in textwrap.wrap(part, WIDTH, subsequent_indent="  ")]


def screen_lines(rows: Sequence[Row]) -> list[str]:
    """The table; the reason under each claim that is not plainly held."""
    lines = [f"{'claim':<74} {'paper':<24} {'here':<22} verdict"]
    for claim, found in rows:
        named = f"{claim.figure:<9} {claim.text}"
        parts = textwrap.wrap(named, 73, subsequent_indent=" " * 10)
        lines.append(f"{parts[0]:<74} {claim.printed:<24} {found.text:<22} {found.verdict.value}")
        lines += parts[1:]
        lines += textwrap.wrap(found.reason, WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10)
    return [*lines, "", count_line(rows)]


def count_line(rows: Sequence[Row]) -> str:
    """How many claims hold."""
    count = Counter(found.verdict for _, found in rows)
    return (
        f"{count[Verdict.HOLDS]} of {len(rows)} claims hold, {count[Verdict.DIRECTION]} in direction only, "
        f"{count[Verdict.FAILS]} do not (with the reason), {count[Verdict.UNMEASURED]} not measured here"
    )


def plain_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The same for machines."""
    return [
        {
            "figure": claim.figure,
            "claim": claim.text,
            "paper": claim.printed,
            "here": found.text,
            "verdict": found.verdict.value,
            "reason": found.reason,
            "values": list(found.values),
        }
        for claim, found in rows
    ]


def plain_grid(grid: Grid) -> dict[str, object]:
    """What is run, as plain values."""
    return {**dataclasses.asdict(grid), "seeds": list(grid.seeds)}
