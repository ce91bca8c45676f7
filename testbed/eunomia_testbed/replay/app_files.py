"""Writes the app files of a replay."""

from pathlib import Path
from typing import Final

from eunomia.platform.toml_text import toml_key, toml_value
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.replay.plan import PlannedApp
from eunomia_testbed.workloads.programs import program_named

CHECKPOINT_EVERY: Final = "30s"
"""Checkpoint interval: the most work that a killed worker may cost a job."""


LOSS: Final = "train/loss"
"""Tag under which every program logs the loss of each iteration."""
LEARNING_RATE: Final = {"type": "float", "low": 1e-3, "high": 0.1, "log": True}
"""Range of the option ``lr`` of every program: the whole search space, so trials differ in nothing else."""


def app_file(app: PlannedApp, folder: Path) -> AppSource:
    """Return the app file of a planned app.

    Args:
        app: the app.
        folder: existing folder, the working folder of the workers.
    """
    slots = app.most if app.least == app.most else {"min": app.least, "max": app.most}
    user = [f"user = {toml_value(app.user)}"] if app.user else []
    weight = [] if app.weight == 1.0 else [f"weight = {toml_value(app.weight)}"]
    lines = [
        "[app]", f"name = {toml_value(app.name)}", *user, *weight,
        "",
        "[job]",
        f"command = {toml_value(app.command if app.search is None else f'{app.command} {{args}}')}",
        f"slots = {toml_value(slots)}",
        *(['elastic = "live"'] if app.live else []),
        f"max_iterations = {app.iterations}",
        f'checkpoint_every = "{CHECKPOINT_EVERY}"',
        f"batch_size = {app.batch_size}",
        f'kind = "{app.program}-b{app.batch_size}"',
        f"adapts = {toml_value(app.mode)}",
        'env = { OMP_NUM_THREADS = "1" }',
        *_search_lines(app),
    ]  # fmt: skip
    return AppSource(path=folder / f"{app.name}.toml", text="\n".join([*lines, ""]))


def _search_lines(app: PlannedApp) -> list[str]:
    """Return the app file's search tables, with the trace's tuner and its options; only a metric for one job.

    A search compares losses, which each iteration logs, because its first rung may end within the first epoch.
    """
    if app.search is None:
        return ["", "[tuner]", f"metric = {toml_value(program_named(app.program).metric)}"]
    return [
        "",
        "[space]",
        f"lr = {toml_value(LEARNING_RATE)}",
        "",
        "[tuner]",
        f"kind = {toml_value(app.search.tuner)}",
        f"metric = {toml_value(LOSS)}",
        'mode = "min"',
        f"trials = {app.trials}",
        *(f"{toml_key(name)} = {toml_value(option)}" for name, option in app.search.options.items()),
    ]
