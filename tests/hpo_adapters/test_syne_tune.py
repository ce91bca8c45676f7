"""A search of Syne Tune on an app's leases: its documented example, the height problem under ASHA."""

import shutil
import sys
from pathlib import Path

import pytest
from leases_lab import Leases, leases
from tests.appmaster.serving_lab import eventually, floors

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.app.trials_file import read_trials_file

__all__ = ["floors"]
pytest.importorskip("syne_tune", reason="Syne Tune is not installed: pip install 'eunomia[syne-tune]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
EPOCHS = 27
EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "examples" / "height"


def app_file(folder: Path) -> Path:
    """The example's app file, with so much work that other apps go first."""
    shutil.copy(EXAMPLE / "train_height.py", folder)
    text = (EXAMPLE / "height.toml").read_text().replace("python ", f"{sys.executable} ")
    (folder / "height.toml").write_text(f"{text}max_iterations = 1000000\n")
    return folder / "height.toml"


def test_asha_goes_on_as_its_slots_grow_and_shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from syne_tune import Tuner
    from syne_tune.config_space import randint
    from syne_tune.optimizer.baselines import ASHA

    from eunomia_hpo_adapters.syne_tune_backend import EunomiaBackend

    monkeypatch.setenv("SYNETUNE_FOLDER", str(tmp_path / "syne-tune"))
    with leases(tmp_path, monkeypatch) as made:
        backend = EunomiaBackend(app_file(tmp_path), time_attr="epoch", **made.connection)
        space = {"width": randint(1, 20), "height": randint(1, 20), "epochs": EPOCHS}
        scheduler = ASHA(space, metric="mean_loss", time_attr="epoch", max_t=EPOCHS, grace_period=3, random_seed=3)
        breathed: list[bool] = []
        tuner = Tuner(
            backend, scheduler, lambda status: bool(breathed) and status.num_trials_finished >= 6, n_workers=3,
            sleep_time=0.3, save_tuner=True,
        )  # fmt: skip

        def scene() -> None:
            try:
                made.breathe("height", lambda: reports(backend))
            finally:
                breathed.append(True)

        with made.beside(scene):
            tuner.run()
        assert eventually(lambda: made.arbiter.app("height").state == "finished", "the app ends")
        assert not made.arbiter.app("height").standing.notices
        rows = read_trials_file(backend.app.folder)
        assert {row["state"] for row in rows} <= {"finished", "stopped"} and len(rows) >= 6
        assert any(int(row["incarnations"]) > 1 for row in rows), "a trial went on after it had left its slot"
        for trial in backend.trial_ids:
            epochs = [report["epoch"] for report in backend._reports[trial].reports]
            assert epochs == list(range(1, len(epochs) + 1)), "no epoch is missing, none is told twice"
        assert tuner.best_config()[1]["epochs"] == EPOCHS
        check_refusals(made, backend, tmp_path)


def reports(backend: object) -> int:
    """Number of reports that the backend has passed on."""
    return sum(len(kept.reports) for kept in dict(backend._reports).values())  # type: ignore[attr-defined]


def check_refusals(made: Leases, backend: object, folder: Path) -> None:
    """What the backend cannot do, and what it says once its app has ended."""
    from eunomia_hpo_adapters.syne_tune_backend import EunomiaBackend

    assert isinstance(backend, EunomiaBackend)
    with pytest.raises(InputError, match="without the checkpoint of another trial"):
        backend.copy_checkpoint(0, 1)
    with pytest.raises(InputError, match="numbers, texts, true or false"):
        backend.start_trial({"layers": [1, 2]})
    with pytest.raises(InputError, match="must keep its configuration"):
        backend.resume_trial(0, {"width": 3})
    backend.app._looked_at = float("-inf")
    with pytest.raises(EunomiaError, match="app height must run for its search to go on, but got finished"):
        backend.fetch_status_results([0])
    again = EunomiaBackend(app_file(folder), **made.connection)
    assert again.app.name == "height-2"
    again.stop_all()
