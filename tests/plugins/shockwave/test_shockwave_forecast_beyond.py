"""The forecast under policies of other families: orders read coming regimes as they read announced ones."""

import dataclasses
from pathlib import Path

import pytest

from eunomia import ComingRegime, Profile, Scores
from eunomia.contract.menus import announced
from eunomia.contract.valuations import Valuations
from eunomia.model.adaptations import Adapts
from eunomia.model.cluster import Cluster
from eunomia.testing.builders import World
from eunomia_testbed import read_trace, simulate
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.simulator.options import Reports

ORDERS = ("srtf", "srsf", "themis_rho", "index_rule")
DECLARED = {"batch_size": 32.0, "epochs": 100.0, "samples_per_epoch": 320.0, "seconds_per_iteration": 1.0}
GAIN = {"plugins.shockwave_forecast.gain": 1.0, "plugins.shockwave_forecast.growth": 2.0}
"""The doubled batch takes as many iterations a second: 50 epochs of 10 s, then 50 of 5 s."""


def world() -> World:
    """A job that will double its batch size, and one of 800 iterations that never will."""
    made = World("1x2 V100").job("a/1", iterations=1000.0, adapts=int(Adapts.GNS), **DECLARED)
    return made.job("b/1", iterations=800.0, adapts=int(Adapts.STATIC), **DECLARED)


def scores(order: str, elasticity: str, made: World) -> list[float]:
    """By job, the first score: lower is served first."""
    settings = {"stages.elasticity": elasticity} | (GAIN if elasticity == "shockwave_forecast" else {})
    stages = Profile.load(order, settings=settings).stages(Cluster.parse("1x2 V100"))
    seen = made.snapshot(10.0)
    menus = stages.elasticity(seen)
    if menus.regimes is None:  # as the arbiter does
        menus = dataclasses.replace(menus, regimes=announced(seen.coming_regimes), one_size=False)
    valuations = stages.valuation(seen, menus, made.offer(10.0))
    assert isinstance(valuations, Valuations)
    score = valuations.form(Scores).score
    return [float(each) for each in (score if score.ndim == 1 else score[:, 0])]


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_treats_forecast_regimes_like_announced_ones(order: str) -> None:
    without = scores(order, "fixed", world())
    forecast = scores(order, "shockwave_forecast", world())
    coming = ComingRegime(iterations=500.0, rate=2.0, batch_size=64.0)
    assert forecast == pytest.approx(scores(order, "fixed", world().announces("a/1", coming)))
    assert forecast[0] != pytest.approx(without[0])
    if order in ("srtf", "srsf"):
        assert without == pytest.approx([1000.0, 800.0])
        assert forecast == pytest.approx([750.0, 800.0])  # now it comes first
    if order == "themis_rho":
        assert without == pytest.approx([-1010.0 / 1000.0, -810.0 / 800.0])
        assert forecast == pytest.approx([-760.0 / 750.0, -810.0 / 800.0])


# A doubled batch takes twice as long, which the rate at 32 does not say.
TRACE = """\
job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,batch_size,epochs,samples_per_epoch,adaptation,regimes
a,0,1,300,1,32,40,320,gns,"[[200,32,1],[100,64,2]]"
b,0,1,350,1,32,35,320,static,
c,0,1,250,1,32,25,320,static,
"""


@pytest.mark.parametrize("order", ORDERS)
def test_presets_of_other_families_decide_differently_with_the_forecast(tmp_path: Path, order: str) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    own = {"rounds.every": "10s", "rounds.scope": "all"}
    with_forecast = own | {"stages.elasticity": "shockwave_forecast", "plugins.shockwave_forecast.growth": 2.0}
    ends = []
    for settings in (own, with_forecast):
        profile = Profile.load(order, settings=settings)
        options = SimulationOptions(reports=Reports(know="measured"))
        result = simulate(read_trace(tmp_path / "t.csv"), "1x1 V100", [profile], options=options)
        jobs = result.jobs.sort("job")
        assert jobs["state"].to_list() == ["finished"] * 3
        ends.append(jobs["finish_seconds"].to_list())
    assert ends[0] != ends[1]
