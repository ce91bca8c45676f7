"""ASHA of Syne Tune over the trials of one app; each trial runs as the app gets slots."""

from syne_tune import StoppingCriterion, Tuner
from syne_tune.config_space import randint
from syne_tune.optimizer.baselines import ASHA

from eunomia_hpo_adapters.syne_tune_backend import EunomiaBackend

EPOCHS = 27
space = {"width": randint(1, 20), "height": randint(1, 20), "epochs": EPOCHS}
tuner = Tuner(
    trial_backend=EunomiaBackend("height.toml", time_attr="epoch"),
    scheduler=ASHA(space, metric="mean_loss", time_attr="epoch", max_t=EPOCHS, grace_period=3),
    stop_criterion=StoppingCriterion(max_num_trials_finished=20),
    n_workers=4,
)
tuner.run()
