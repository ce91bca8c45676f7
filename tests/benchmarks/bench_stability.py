"""Whether the seed of resamples changes an answer: ``python tests/benchmarks/bench_stability.py [SEEDS] [POLICY ...]``.

One trace of 300 jobs, resampled with ten seeds as ``eunomia advise`` does, until the ends of the intervals stand still.
Passes if no policy is the best by a goal with one seed and ruled out with another, and if the sets of best policies by
mean JCT are equal in at least eight of ten.
"""

import contextlib
import dataclasses
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import bench_resample as lab

from eunomia_testbed.advise.study import MOST_RESAMPLES, stand_still
from eunomia_testbed.evidence.evidence import evidence_in
from eunomia_testbed.evidence.judging import GoalAnswer, judge
from eunomia_testbed.running.many import run_plan
from eunomia_testbed.running.resamples import resampling_of
from eunomia_testbed.spec.planning import plan_of
from eunomia_testbed.spec.simulation import SimulateFlags

POLICIES: Final = ("fifo", "srtf", "las", "max_min", "afs_p", "gandiva_fair")
COSTS: Final = ("start=30s", "pause=30s")


def answers(seed: int, policies: tuple[str, ...]) -> list[GoalAnswer]:
    """The answer to every goal with one seed of the resampling."""
    plan, _ = plan_of(SimulateFlags(trace="jobs.csv", cluster=lab.CLUSTER, policies=policies, cost=COSTS))
    (trace,) = plan.workloads.values()
    resampling = resampling_of(trace, MOST_RESAMPLES, seed=seed, block=None)
    outcome = run_plan(
        dataclasses.replace(plan, resampling=resampling), Path(f"seed-{seed}"), report=False, enough=stand_still
    )
    evidence = evidence_in(outcome.folder, outcome.facts, outcome.metrics)
    found = judge(evidence, policies)
    goals = [*found.goals, *(answer for of_kind in found.fairness.values() for answer in of_kind)]
    mean = found.of("mean_jct")
    assert mean is not None
    print(f"seed {seed}: {evidence.draws.count} resamples, mean JCT {', '.join(sorted(mean.best))}", flush=True)
    return goals


def main(seeds: int, policies: tuple[str, ...]) -> bool:
    """Print the sets of best policies by seed and goal; return whether they pass."""
    Path("jobs.csv").write_text(lab.trace(), encoding="utf-8")
    by_seed = [answers(seed, policies) for seed in range(seeds)]
    turned = []
    for of_goal in zip(*by_seed, strict=True):
        sets = Counter(frozenset(each.best) for each in of_goal)
        alone = {each.best[0] for each in of_goal if each.decided and len(each.best) == 1}
        turned += [
            (of_goal[0].goal.name, policy) for policy in alone if any(policy not in each.best for each in of_goal)
        ]
        shown = "; ".join(f"{', '.join(sorted(names))} ({count})" for names, count in sets.most_common())
        print(f"  {of_goal[0].goal.name:<32} {shown}")
    means = Counter(frozenset(each.best) for each in by_seed_of("mean_jct", by_seed))
    same = means.most_common(1)[0][1]
    print(f"best by a goal with one seed and ruled out with another: {turned or 'none'}")
    print(f"sets of best policies by mean JCT: equal with {same} of {seeds} seeds")
    return not turned and same >= 0.8 * seeds


def by_seed_of(name: str, by_seed: list[list[GoalAnswer]]) -> list[GoalAnswer]:
    return [each for found in by_seed for each in found if each.goal.name == name]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        passed = main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, tuple(sys.argv[2:]) or POLICIES)
    sys.exit(0 if passed else 1)
