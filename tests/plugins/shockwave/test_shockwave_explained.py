"""What `eunomia explain` says of jobs under Shockwave: forecasts of running jobs, turns of waiting ones."""

import pytest
from shockwave_lab import Lab

from eunomia import Profile, Seconds
from eunomia.contract.events import Adapted
from eunomia.explain.explaining import Explainer
from eunomia.model.adaptations import Adapts
from eunomia.units import JobId

GNS = {"batch_size": 32.0, "epochs": 24.0, "samples_per_epoch": 320.0, "adapts": Adapts.GNS}


def explainer(lab: Lab, *decisions: object, profile: str = "shockwave") -> Explainer:
    stages, fallback = Profile.load(profile).stages(lab.cluster), Profile.fallback().stages(lab.cluster)
    return Explainer(lab.arbiter.save(), lab.cluster, stages, fallback, decisions, Seconds(lab.now))  # type: ignore[arg-type]


def test_forecasts_of_running_and_waiting_jobs_are_explained() -> None:
    lab = Lab("1x1 V100", plugins__shockwave_forecast__growth=4.0)
    made = lab.submit(("a", 1, 240.0), ("b", 1, 240.0), **GNS)
    runs = explainer(lab, made).forecast(JobId("a"))
    assert runs is not None
    assert runs.text.startswith("Its forecast is 8.0 epochs at batch size 32, then 8.0 epochs at batch size 64, then ")
    waits = explainer(lab, made).explain(JobId("b"))
    assert waits.starts_in == pytest.approx((240.0, 240.0))
    assert "of the next 3 rounds of 120 s in the plan. Its forecast is 8.0 epochs" in waits.text
    lab.step(Adapted(job=JobId("a"), batch_size=64.0, iterations_done=40.0), at=40.0)
    runs = explainer(lab, made).forecast(JobId("a"))
    assert runs is not None
    assert runs.text.startswith("Its forecast is 10.0 epochs at batch size 64, then 10.0 epochs at batch size 128: ")


def test_no_forecast_is_explained_without_a_round_or_an_elasticity_with_forecasts() -> None:
    lab = Lab("1x1 V100")
    made = lab.submit(("a", 1, 240.0), **GNS)
    assert explainer(lab).forecast(JobId("a")) is None
    assert explainer(lab, made, profile="srtf").forecast(JobId("a")) is None
