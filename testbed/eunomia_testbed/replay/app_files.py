"""Writes the app files of a replay."""

from pathlib import Path
from typing import Final

from eunomia.platform.toml_text import toml_value
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.replay.plan import PlannedApp
from eunomia_testbed.workloads.programs import program_named

CHECKPOINT_EVERY: Final = "30s"
"""The most work that a kill may cost a job."""


def app_file(app: PlannedApp, folder: Path) -> AppSource:
    """Return the app file of a planned app.

    Args:
        app: the app.
        folder: existing folder, which the workers have as working folder.
    """
    program = program_named(app.program)
    slots = app.most if app.least == app.most else {"min": app.least, "max": app.most}
    user = [f"user = {toml_value(app.user)}"] if app.user else []
    weight = [] if app.weight == 1.0 else [f"weight = {toml_value(app.weight)}"]
    lines = [
        "[app]", f"name = {toml_value(app.name)}", *user, *weight,
        "",
        "[job]",
        f"command = {toml_value(app.command)}",
        f"slots = {toml_value(slots)}",
        f"max_iterations = {app.iterations}",
        f'checkpoint_every = "{CHECKPOINT_EVERY}"',
        f"batch_size = {app.batch_size}",
        f"adapts = {toml_value(app.mode)}",
        'env = { OMP_NUM_THREADS = "1" }',
        "",
        "[tuner]",
        f"metric = {toml_value(program.metric)}",
    ]  # fmt: skip
    return AppSource(path=folder / f"{app.name}.toml", text="\n".join([*lines, ""]))
