"""A search of Ray Tune on an app's leases: the example of ASHA on a function, which writes checkpoints."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from leases_lab import PATIENCE_SECONDS, leases
from tests.appmaster.serving_lab import eventually, floors

from eunomia.errors import InputError

__all__ = ["floors"]
ray = pytest.importorskip("ray", reason="Ray Tune is not installed: pip install 'eunomia[ray-tune]'")
pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="Ray Tune is not installed: pip install 'eunomia[ray-tune]'"
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "examples" / "height"
LEAST_EPOCHS = 10


def train(config: dict[str, Any]) -> None:
    """Report an epoch each half second, until the test has seen all; a line of ``progress`` for each."""
    import json
    import tempfile
    import time
    from pathlib import Path

    from ray import tune

    folder, checkpoint, done = Path(config["folder"]), tune.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as kept:
            done = json.loads((Path(kept) / "epoch.json").read_text())
    while done < config["least"] or not (folder / "breathed").exists():
        time.sleep(0.5)
        done += 1
        with (folder / "progress").open("a") as lines:
            lines.write(f"{tune.get_context().get_trial_id()} {done}\n")
        with tempfile.TemporaryDirectory() as kept:
            (Path(kept) / "epoch.json").write_text(json.dumps(done))
            loss = 1 / (0.1 + config["width"] * done / 100) + config["height"] * 0.1
            tune.report({"epoch": done, "mean_loss": loss}, checkpoint=tune.Checkpoint.from_directory(kept))


def app_file(folder: Path) -> Path:
    """The example's app file, with so much work that other apps go first."""
    text = (EXAMPLE / "slots.toml").read_text().replace("python ", f"{sys.executable} ")
    (folder / "slots.toml").write_text(f"{text}max_iterations = 1000000\n")
    return folder / "slots.toml"


def test_asha_goes_on_as_its_slots_grow_and_shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    from eunomia_hpo_adapters.ray_leases import RayLeases, open_leases
    from eunomia_hpo_adapters.ray_scheduler import LeaseScheduler

    progress = tmp_path / "progress"
    with pytest.raises(InputError, match="init must be called"):
        RayLeases("slots.toml", slots=3)

    def epochs() -> int:
        return len(progress.read_text().splitlines()) if progress.exists() else 0

    def scene() -> None:
        try:
            made.breathe("slots", epochs, lambda: open_leases("slots").view.up)
        finally:
            (tmp_path / "breathed").touch()

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # else workers would import this test
    with leases(tmp_path, monkeypatch) as made:
        ray.init(address="local", num_cpus=0, include_dashboard=False, logging_level="warning")
        try:
            with RayLeases(app_file(tmp_path), slots=3, **made.connection) as slots, made.beside(scene):
                space = {"width": tune.randint(1, 20), "height": tune.randint(1, 20), "least": LEAST_EPOCHS}
                scheduler = LeaseScheduler(slots, ASHAScheduler(time_attr="epoch", max_t=1000, grace_period=3))
                tuner = tune.Tuner(
                    tune.with_resources(train, {"cpu": 1}),
                    param_space={**space, "folder": str(tmp_path)},
                    tune_config=tune.TuneConfig(
                        num_samples=8, metric="mean_loss", mode="min", max_concurrent_trials=3, scheduler=scheduler
                    ),
                    run_config=tune.RunConfig(
                        storage_path=str(tmp_path / "results"),
                        failure_config=tune.FailureConfig(max_failures=-1),
                        verbose=0,
                    ),
                )
                results = tuner.fit()
                assert open_leases("slots") is slots
            eventually(lambda: made.arbiter.app("slots").state == "finished", "the app ends", PATIENCE_SECONDS)
        finally:
            ray.shutdown()
        assert not made.arbiter.app("slots").standing.notices
        assert len(results) == 8 and not any(result.error for result in results)
        seen = Counter(tuple(line.split()) for line in progress.read_text().splitlines())
        last: dict[str, int] = {}
        for trial, epoch in seen:
            last[trial] = max(last.get(trial, 0), int(epoch))
        assert sum(last.values()) == len(seen), "no epoch is missing: trials went on from their checkpoints"
        made.note(f"{len(seen)} epochs, of which {seen.total() - len(seen)} were done twice")
    with pytest.raises(InputError, match="must be made before a search that had slots is restored"):
        open_leases("slots")
