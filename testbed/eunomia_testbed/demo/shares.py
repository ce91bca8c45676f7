"""Measures the cost of sharing: searches run together under Themis, and each search alone on its share.

``python -m eunomia_testbed.demo.shares`` runs the demo's three searches together on three slots, and each alone on one
slot of a separate arbiter. All run at the same time, so that other load on the machine slows their steps equally. The
measured ρ is the time together over the time alone; the predicted ρ is the arbiter's own value during the run.
"""

import argparse
import contextlib
import dataclasses
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from eunomia.errors import EunomiaError
from eunomia_appmaster.csv_cells import csv_text
from eunomia_testbed.demo.apps_of_demo import SEED, app_sources
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.live_runs.fairness import final_rho
from eunomia_testbed.live_runs.live_run import LiveRun
from eunomia_testbed.results import new_folder_name

LOOK_SECONDS = 0.5
LIMIT_SECONDS = 1200.0
"""Limit in seconds on the whole measurement."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The completion time of a search while it shares the machine, and alone on an equal share, with the predicted ρ.

    Attributes:
        app: name of the search.
        together_seconds: seconds from submission to end, with the others.
        alone_seconds: seconds from submission to end, alone.
        first: the first ρ that the arbiter reported.
        middle: the median of the reported ρ, sampled once a second.
        last: ρ computed at the end, from the total work and the number of apps (Themis eq. 1 and 2).
    """

    app: str
    together_seconds: float
    alone_seconds: float
    first: float
    middle: float
    last: float

    @property
    def measured(self) -> float:
        """Return the measured ρ: the time together (T_sh) over the time alone on 1/N of the machine."""
        return self.together_seconds / self.alone_seconds


def searches(seed: int, scale: float = 1.0) -> list[AppSource]:
    """Return the demo's searches with trials ``scale`` times as long."""
    return [
        source.with_setting("max_iterations", round(scale * source.max_iterations))
        for source in app_sources(seed)
        if source.path.stem != "single"
    ]


def measure(folder: Path, sources: Sequence[AppSource], *, policy: str = "demo", seed: int = SEED) -> list[Share]:
    """Run searches together on as many slots as there are searches, and each alone on one slot.

    Args:
        folder: new folder for the runs.
        sources: the searches.
        policy: a profile with Themis' valuation.
        seed: seed of the arbiter.

    Raises:
        EunomiaError: an app did not finish in time.
    """
    whole = LiveRun(folder / "together", sources, policy=policy, slots=len(sources), seed=seed, cpu_only=True)
    parts = [
        LiveRun(
            folder / source.path.stem,
            [source.with_setting("slots", 1)],
            policy=policy,
            slots=1,
            seed=seed,
            cpu_only=True,
        )
        for source in sources
    ]
    run_to_the_end([whole, *parts])
    return [_share(whole, part, source.path.stem) for part, source in zip(parts, sources, strict=True)]


def run_to_the_end(runs: Sequence[LiveRun]) -> None:
    """Run several arbiters with their apps at the same time until all apps end, then stop all processes."""
    with contextlib.ExitStack() as stack:
        for run in runs:
            stack.enter_context(run)
        for run in runs:
            run.submit()
        deadline = time.monotonic() + LIMIT_SECONDS
        left = list(runs)
        while left:
            if time.monotonic() > deadline:
                raise EunomiaError(f"searches must end within {LIMIT_SECONDS:g} s", place=str(left[0].folder))
            for run in left:
                run.look()
            left = [run for run in left if not run.is_over]
            time.sleep(LOOK_SECONDS)


def _share(whole: LiveRun, part: LiveRun, app: str) -> Share:
    said = [sample.rho for sample in whole.samples if sample.app == app and sample.rho is not None]
    life = whole.record.apps[app]
    last = final_rho(life, whole.record.apps, whole.record.slots)
    if not said or last is None:
        raise EunomiaError("an app must have reported its work", value=app, place=str(whole.folder))
    return Share(
        app=app,
        together_seconds=_seconds(whole, app),
        alone_seconds=_seconds(part, app),
        first=said[0],
        middle=median(said),
        last=last,
    )


def _seconds(run: LiveRun, app: str) -> float:
    life = run.record.apps[app]
    if life.ended_at is None or life.state != "finished":
        raise EunomiaError("an app must finish", value=f"{app} is {life.state}", place=str(run.folder))
    return life.ended_at - life.arrived_at


HEADINGS = (
    "search", "together s", "alone on its share s", "ρ measured", "ρ predicted at first", "in the middle", "at the end",
)  # fmt: skip


def table(shares: Sequence[Share]) -> list[tuple[str, ...]]:
    """Return the table as rows of text: the headings, then a row for each search."""
    return [
        HEADINGS,
        *(
            (
                each.app, f"{each.together_seconds:.0f}", f"{each.alone_seconds:.0f}", f"{each.measured:.2f}",
                f"{each.first:.2f}", f"{each.middle:.2f}", f"{each.last:.2f}",
            )
            for each in shares
        ),
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write it to ``shares.csv``."""
    parser = argparse.ArgumentParser(prog="python -m eunomia_testbed.demo.shares", description=__doc__)
    parser.add_argument("--out", type=Path, help="the folder to leave; a new one in ./eunomia-out by default")
    parser.add_argument("--policy", default="demo", help="a profile whose valuation is Themis'")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--scale", type=float, default=1.0, help="trials so many times as long as the demo's")
    given = parser.parse_args(arguments)
    folder = given.out or Path("eunomia-out") / new_folder_name("shares", datetime.now(UTC))
    folder.mkdir(parents=True)
    rows = table(measure(folder, searches(given.seed, given.scale), policy=given.policy, seed=given.seed))
    (folder / "shares.csv").write_text(csv_text(rows), encoding="utf-8", newline="")
    for row in rows:
        sys.stdout.write("  ".join(f"{cell:>20}" for cell in row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
