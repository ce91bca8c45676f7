"""ASHA of Ray Tune on the slots of an app: each slot is a node of Ray's cluster as long as the app has it."""

import json
import tempfile
import time
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from eunomia_hpo_adapters.ray_leases import RayLeases
from eunomia_hpo_adapters.ray_scheduler import LeaseScheduler

EPOCHS = 27


def train(config):
    checkpoint, done = tune.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as kept:
            done = json.loads((Path(kept) / "epoch.json").read_text())
    for epoch in range(done + 1, EPOCHS + 1):
        time.sleep(0.5)
        loss = 1 / (0.1 + config["width"] * epoch / 100) + config["height"] * 0.1
        with tempfile.TemporaryDirectory() as new:
            (Path(new) / "epoch.json").write_text(json.dumps(epoch))
            tune.report({"epoch": epoch, "mean_loss": loss}, checkpoint=tune.Checkpoint.from_directory(new))


ray.init(address="local", num_cpus=0)  # the trials run on the app's slots alone
with RayLeases("slots.toml", slots=4) as leases:
    asha = ASHAScheduler(time_attr="epoch", max_t=EPOCHS, grace_period=3)
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"width": tune.randint(1, 20), "height": tune.randint(1, 20)},
        tune_config=tune.TuneConfig(
            metric="mean_loss",
            mode="min",
            num_samples=20,
            max_concurrent_trials=4,
            scheduler=LeaseScheduler(leases, asha),
        ),
        run_config=tune.RunConfig(failure_config=tune.FailureConfig(max_failures=-1)),
    )
    tuner.fit()
