"""The index rule as shipped, on Shockwave's own trace under the peer's round rules: better than what is published."""

import numpy as np
from real_data import shared_data

from eunomia import Cluster, Profile
from eunomia_testbed.performance import GavelThroughputs
from eunomia_testbed.simulator import SimulationOptions, simulate_one
from eunomia_testbed.simulator.gavel_rules import SHOCKWAVE, gavel_rules, under_rules
from eunomia_testbed.simulator.options import Reports
from eunomia_testbed.traces.reading import read_trace

PUBLISHED = {"makespan": 24197.0, "mean": 9958.0, "worst": 1.784, "unfair": 0.05}


def test_the_index_rule_is_better_than_published_shockwave_in_every_metric() -> None:
    file = shared_data("shockwave/tacc_throughputs.json.gz")
    workload = read_trace(shared_data("shockwave/canonical_120jobs_32gpus.trace"), throughputs=file)
    rates, site = GavelThroughputs.read(file).without_placement(), Cluster.parse("32x1 V100")
    profile = Profile.load("index_rule")
    options = SimulationOptions(reports=Reports(know="measured"), rules=gavel_rules(workload, site, rates, SHOCKWAVE))
    run = simulate_one(
        workload,
        site,
        under_rules(profile, SHOCKWAVE),
        options=options,
        models=rates,
    )
    jct = run.finish_seconds - workload.jobs.arrival_seconds
    rho = jct / (run.exclusive_seconds * 120 / 32)
    found = {
        "makespan": float(run.finish_seconds.max()),
        "mean": float(jct.mean()),
        "worst": float(rho.max()),
        "unfair": float(np.mean(rho > 1.05)),
    }
    assert all(found[name] < PUBLISHED[name] for name in PUBLISHED), found
    assert found["makespan"] < 21_900 and found["mean"] < 8_147
