"""The settings in which programs are measured, and the app files of the measuring runs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from eunomia.model.shapes import value
from eunomia.platform.toml_text import toml_value
from eunomia_testbed.live_runs.app_source import AppSource

EXEC_ENV: Final = {"PYTHONNOUSERSITE": "1"}
"""A variable that Python reads when it starts; with it, the launcher starts a worker by exec, not by fork."""


@value
class RateSetting:
    """A program in one setting, whose rate a replay needs.

    Attributes:
        program: name of the program.
        command: its command line, with all options.
        batch_size: global batch size, as in the command.
        slots: size of the gang.
        slot_type: type of the slots.
    """

    program: str
    command: str
    batch_size: int
    slots: int
    slot_type: str

    def describe(self) -> str:
        """Return the setting as text."""
        return f"{self.program} with batch size {self.batch_size} on {self.slots} x {self.slot_type}"


def app_of(
    setting: RateSetting, name: str, *, iterations: int, folder: Path, by_exec: bool = False, live: bool = False
) -> AppSource:
    """Return the app of one measuring run.

    Args:
        setting: the setting to measure.
        name: name of the app.
        iterations: work of the app in optimizer steps.
        folder: working folder of the command.
        by_exec: start a new interpreter instead of forking the launcher's zygote.
        live: let the job change its size live, between one slot and the setting's slots.
    """
    env = {"OMP_NUM_THREADS": "1"} | (EXEC_ENV if by_exec else {})
    live_slots = f'slots = {{ min = 1, max = {setting.slots} }}\nelastic = "live"'
    lines = [
        "[app]",
        f"name = {toml_value(name)}",
        "[job]",
        f"command = {toml_value(setting.command)}",
        live_slots if live else f"slots = {setting.slots}",
        f"max_iterations = {iterations}",
        f"env = {toml_value(env)}",
        "",
    ]
    return AppSource(path=folder / f"{name}.toml", text="\n".join(lines))
