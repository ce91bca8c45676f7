"""The elasticity ``shockwave_forecast``: coming regimes from declarations, histories and measured rates."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eunomia import ComingRegime, Menus, Profile, Stage
from eunomia.contract.snapshot import Reported
from eunomia.errors import InputErrors
from eunomia.model.adaptations import Adapts
from eunomia.model.kind_profiles import KnownRate
from eunomia.platform.registry import Registry
from eunomia.testing.builders import World
from eunomia.units import JobId, Locality
from eunomia_plugins.shockwave.forecasts.memo import Beliefs
from eunomia_plugins.shockwave.forecasts.options import ShockwaveForecastOptions
from eunomia_plugins.shockwave.forecasts.plugin import ShockwaveForecast
from eunomia_testbed import read_trace, simulate
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.simulator.options import Reports

JOB = "a/1"
SAMPLES = 320.0
"""Samples of an epoch: 10 iterations at batch size 32, 5 at 64."""


def town(mode: Adapts = Adapts.GNS, *, iterations: float = 1000.0, **columns: float) -> World:
    """A job of 100 epochs at batch size 32, with an iteration a second as declared."""
    declared = {
        "seconds_per_iteration": 1.0,
        "batch_size": 32.0,
        "epochs": 100.0,
        "samples_per_epoch": SAMPLES,
        "adapts": int(mode),
    }
    return World("1x4 V100").job(JOB, iterations=iterations, **{**declared, **columns})


def forecast(**options: object) -> ShockwaveForecast:
    return ShockwaveForecast(ShockwaveForecastOptions.model_validate(options))


def coming(menus: Menus, row: int) -> list[tuple[float, float, float]]:
    """Batch size, iterations and seconds of each coming regime of a job."""
    known = menus.regimes
    assert known is not None
    assert known.batch_size is not None
    mine = known.job == row
    seconds = known.iterations[mine] / known.rate[mine]
    return [*zip(known.batch_size[mine].tolist(), known.iterations[mine].tolist(), seconds.tolist(), strict=True)]


def test_a_new_job_is_expected_to_divide_its_epochs_evenly() -> None:
    world = town()
    menus = forecast(growth=2.0, gain=1.0).eunomia_elasticity(world.snapshot())
    # 50 epochs at 32, then 50 at 64: as many iterations a second, half as many an epoch; work counts in steps of 32.
    assert coming(menus, 0) == [(64.0, pytest.approx(500.0), pytest.approx(250.0))]


def test_work_may_be_counted_in_steps_of_each_regime() -> None:
    """50 epochs of 10 iterations and 50 of 5: what is left behind the present regime is the next one's."""
    menus = forecast(growth=2.0, gain=1.0).eunomia_elasticity(town(iterations=750.0).snapshot())
    assert coming(menus, 0) == [(64.0, pytest.approx(250.0), pytest.approx(250.0))]


def test_a_doubled_batch_size_restates_the_remaining_epochs() -> None:
    world = town().adapts(JOB, 64.0, iterations_done=200.0)  # 20 epochs at 32; 80 are left
    world.measures(JOB, 1, 1.0, batch_size=32.0).measures(JOB, 1, 0.8, batch_size=64.0)
    menus = forecast(largest_batch={JOB: 128.0}).eunomia_elasticity(world.snapshot())
    # None of the 40 epochs at 64 is done: 5 iterations each at 0.8 a second. At 128 iterations are 0.8 as fast again.
    ((batch, _, seconds),) = coming(menus, 0)
    assert batch == 128.0
    assert seconds == pytest.approx(40 * 3 / 0.64)  # an epoch of 320 samples is 3 batches of 128
    assert menus.full_rate(np.array([0]))[0] == 0.8


def test_a_measured_rate_takes_precedence_over_the_assumed_gain() -> None:
    world = town().measures(JOB, 1, 0.25, batch_size=64.0)
    menus = forecast(growth=2.0, gain=1.0).eunomia_elasticity(world.snapshot())
    assert coming(menus, 0) == [(64.0, pytest.approx(500.0), pytest.approx(50 * 5 / 0.25))]


def test_a_rate_at_a_new_batch_size_is_derived_from_those_at_others() -> None:
    """A live job declares no rate, and right after its adaptation none is measured: it is not a job without a rate."""
    unknown = town(seconds_per_iteration=np.nan).measures(JOB, 1, 2.0, batch_size=32.0)
    world = unknown.adapts(JOB, 64.0, iterations_done=200.0)
    menus = forecast(growth=4.0).eunomia_elasticity(world.snapshot())  # as many samples a second
    assert menus.full_rate(np.array([0]))[0] == pytest.approx(1.0)
    assert coming(menus, 0) == [(128.0, pytest.approx(1000.0 - 40 * 5), pytest.approx(40 * 3 / 0.5))]
    faster = forecast(growth=4.0, gain=1.0).eunomia_elasticity(world.snapshot())  # as many iterations a second
    assert faster.full_rate(np.array([0]))[0] == pytest.approx(2.0)


def test_a_job_starts_with_the_measured_rates_of_its_kind() -> None:
    seen = town(seconds_per_iteration=np.nan, batch_size=64.0).snapshot()
    rate = KnownRate(gpus=1, gpu_type="V100", locality=Locality.ISLAND, rate=2.0, batch_size=32.0)
    known = dataclasses.replace(seen, reports=Reported(profiles={int(seen.jobs.job_kind[0]): (rate,)}))
    assert forecast().eunomia_elasticity(known).full_rate(np.array([0]))[0] == pytest.approx(1.0)


def test_a_job_without_a_known_rate_is_forecast_without_times() -> None:
    world = town(seconds_per_iteration=np.nan)
    plugin = forecast(growth=2.0)
    menus = plugin.eunomia_elasticity(world.snapshot())
    assert isinstance(menus.memo, Beliefs)
    assert menus.record is not None
    columns = menus.record.columns()
    assert columns["left_seconds"] == columns["low_seconds"] == columns["high_seconds"] == [None, None]
    said = plugin.eunomia_explain(world.remembers(plugin.name, Stage.ELASTICITY, menus.memo).snapshot(), JobId(JOB))
    assert said is not None
    assert said.text.endswith("at batch size 64; how long that takes is not known until a rate is.")
    assert said.numbers == {"forecast_regimes_to_come": 1.0}


@pytest.mark.parametrize(
    "world",
    [
        town(Adapts.STATIC),
        town(Adapts.OTHER),
        town(epochs=np.nan),
        town(samples_per_epoch=np.nan),
        town(batch_size=np.nan),
    ],
)
def test_a_job_without_a_declared_mode_has_no_coming_regimes(world: World) -> None:
    assert forecast(gain=1.0).eunomia_elasticity(world.snapshot()).regimes is None


@pytest.mark.parametrize(
    "world",
    [
        town().adapts(JOB, 16.0, iterations_done=100.0),  # GNS never goes down
        town(Adapts.ACCORDION).adapts(JOB, 64.0, iterations_done=100.0).adapts(JOB, 128.0, iterations_done=150.0, at=1),
    ],
)
def test_a_job_that_breaks_its_pattern_is_expected_to_keep_its_batch_size(world: World) -> None:
    assert coming(forecast(gain=1.0).eunomia_elasticity(world.snapshot()), 0) == []


def test_announced_regimes_take_precedence_over_the_forecast() -> None:
    world = town().announces(JOB, ComingRegime(iterations=10.0, rate=2.0, batch_size=96.0))
    assert coming(forecast(gain=1.0).eunomia_elasticity(world.snapshot()), 0) == [(96.0, 10.0, 5.0)]


def test_the_rule_last_throughput_expects_no_coming_regime() -> None:
    assert coming(forecast(rule="last", gain=1.0).eunomia_elasticity(town().snapshot()), 0) == []


def test_the_plugins_forecast_and_fixed_give_menus_with_equal_sizes_and_rates() -> None:
    world = World("1x8 V100").job("a/1", gpus=(1, 4), seconds_per_iteration=0.5).job("b/1", gpus=2).job("c/1", gpus=2)
    world.measures("b/1", 1, 3.0).measures("c/1", 2, 7.0)
    menus = forecast().eunomia_elasticity(world.snapshot())
    assert [menus.sizes(row).tolist() for row in range(3)] == [[4], [2], [2]]
    assert menus.full_rate(np.arange(3, dtype=np.int32)).tolist() == [8.0, 6.0, 7.0]


# --- memo, words, records --------------------------------------------------------------------------------------------


def test_the_memo_holds_the_posteriors_and_is_restored_from_bytes() -> None:
    world, plugin = town().adapts(JOB, 64.0, iterations_done=200.0), forecast(growth=4.0)
    memo = plugin.eunomia_elasticity(world.snapshot()).memo
    assert isinstance(memo, Beliefs)
    assert memo.by_job[JOB].posterior.parameters == (20.0, 40.0, 40.0)
    assert memo.by_job[JOB].batch_sizes == (32.0, 64.0, 128.0)
    again = Beliefs.from_bytes(Beliefs.version, memo.to_bytes())
    assert again == memo
    world.remembers("shockwave_forecast", Stage.ELASTICITY, again)
    menus = forecast(growth=4.0).eunomia_elasticity(world.snapshot())
    assert menus.memo is None  # nothing has changed
    assert menus.record is None


def test_a_forecast_is_explained_with_its_interval() -> None:
    world, plugin = town(), forecast(growth=2.0, gain=1.0)
    memo = plugin.eunomia_elasticity(world.snapshot()).memo
    assert memo is not None
    said = plugin.eunomia_explain(world.remembers(plugin.name, Stage.ELASTICITY, memo).snapshot(), JobId(JOB))
    assert said is not None
    assert said.text == (
        "Its forecast is 50.0 epochs at batch size 32, then 50.0 epochs at batch size 64: 750 s of running left, "
        "with a chance of 90% between 633 s and 1000 s."
    )
    assert said.numbers["forecast_left_seconds"] == pytest.approx(750.0)
    assert said.numbers["forecast_total_seconds"] == pytest.approx(750.0)


def test_the_interval_includes_unknown_rates_at_batch_sizes_not_yet_measured() -> None:
    """50 epochs of 10 s, then 50 of 5 to 10 s; with a rate known there only their number is open: 100 at 5 to 10 s."""
    unknown = forecast(growth=2.0, gain=1.0).eunomia_elasticity(town().snapshot()).record
    world = town().measures(JOB, 1, 1.0, batch_size=32.0).measures(JOB, 1, 1.0, batch_size=64.0)
    known = forecast(growth=2.0).eunomia_elasticity(world.snapshot()).record
    assert known is not None
    assert unknown is not None
    assert known.columns()["left_seconds"] == unknown.columns()["left_seconds"] == pytest.approx([750.0] * 2)
    assert known.columns()["low_seconds"] == pytest.approx([525.0] * 2)
    assert unknown.columns()["low_seconds"] == pytest.approx([632.7] * 2, abs=0.1)
    # A job that keeps its batch size until its end is within both.
    assert known.columns()["high_seconds"] == unknown.columns()["high_seconds"] == pytest.approx([1000.0] * 2)


@pytest.mark.parametrize("more", [[], [[True, False]]])
def test_in_a_memo_of_an_older_journal_all_rates_count_as_known(more: list[object]) -> None:
    data = json.dumps({JOB: [100.0, [50.0, 50.0], 0, [32.0, 64.0], [10.0, 5.0], *more]}).encode()
    read = Beliefs.from_bytes(2 if more else 1, data).by_job[JOB]
    assert read.known == ((True, False) if more else (True, True))
    assert read.seconds_per_epoch == (10.0, 5.0)


def test_a_job_that_adapts_without_a_declared_batch_size_is_not_forecast() -> None:
    """Its epochs at the first batch size are not known."""
    world = town(batch_size=math.nan).adapts(JOB, 64.0, iterations_done=200.0)
    menus = forecast(growth=4.0).eunomia_elasticity(world.snapshot())
    assert menus.regimes is None
    assert menus.full_rate(np.arange(1, dtype=np.int32)).tolist() == [1.0]


def test_a_changed_forecast_is_recorded_by_regime() -> None:
    record = forecast(growth=2.0).eunomia_elasticity(town().adapts(JOB, 64.0, iterations_done=200.0).snapshot()).record
    assert record is not None
    assert record.table == "forecasts"
    columns = record.columns()
    assert columns["batch_size"] == [32.0, 64.0]
    assert columns["epochs"] == pytest.approx([20.0, 80.0])
    assert columns["finished"] == [True, False]


@pytest.mark.parametrize(
    "settings",
    [
        {"rule": "oracle"},
        {"accordion_regimes": 0},
        {"growth": 0.5},
        {"gain": 1.5},
        {"chance": 1.0},
        {"largest_batch": {"LM": 0.0}},
        {"largest_batch": {"LM": float("nan")}},
    ],
)
def test_options_out_of_their_range_are_refused(settings: dict[str, object]) -> None:
    wanted = {"stages.elasticity": "shockwave_forecast"} | {
        f"plugins.shockwave_forecast.{name}": given for name, given in settings.items()
    }
    with pytest.raises(InputErrors, match=next(iter(settings))):
        Profile.load("srtf", registry=Registry.find(installed=False), settings=wanted)


# --- in the simulator ------------------------------------------------------------------------------------------------

HEADER = (
    "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,batch_size,epochs,samples_per_epoch,"
    "adaptation,regimes"
)
PATHS = {
    "early": "[[100,32,1],[100,64,1.6],[100,128,2.6]]",
    "late": "[[100,32,1],[180,64,1.6],[20,128,2.6]]",  # as the first until 260 s
}


def forecasts(tmp_path: Path, path: str) -> pl.DataFrame:
    trace = tmp_path / f"{path}.csv"
    waits = "b,1,1,5000,1,32,,,static,"  # so that there are rounds while the first one runs
    trace.write_text(f'{HEADER}\na,0,1,300,1,32,66,320,gns,"{PATHS[path]}"\n{waits}\n')
    profile = Profile.load(
        "srtf", settings={"stages.elasticity": "shockwave_forecast", "rounds.every": "10s", "rounds.scope": "all"}
    )
    options = SimulationOptions(reports=Reports(know="measured"))
    result = simulate(read_trace(trace), "1x1 V100", [profile], options=options)
    return result.records["shockwave_forecast"]


def test_a_forecast_does_not_depend_on_future_regimes(tmp_path: Path) -> None:
    early, late = forecasts(tmp_path, "early"), forecasts(tmp_path, "late")
    time = next(name for name in early.columns if name.startswith("time"))
    until = 259.0
    seen = early.filter(pl.col(time) < until)
    assert seen.equals(late.filter(pl.col(time) < until))
    assert set(seen["batch_size"].to_list()) == {32.0, 64.0, 128.0, 256.0}
    assert seen[time].n_unique() == 2  # at the first round, and when it has doubled
    assert not early.equals(late)
