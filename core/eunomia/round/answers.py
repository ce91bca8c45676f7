"""Convert an exception of a stage, or an answer of the wrong type, to a fault of the stage's plugin."""

import traceback
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from eunomia.contract.verdicts import Verdicts
from eunomia.errors import EunomiaError
from eunomia.units import Stage, Unit


class StageVerdicts(NamedTuple):
    """The verdicts that one stage gave in a round."""

    stage: Stage
    plugin: str
    unit: Unit
    """The unit of the rows in ``verdicts``."""
    verdicts: Verdicts


class StageFaultError(EunomiaError):
    """A stage raised an exception, or its answer does not have the type of its hook."""

    def __init__(self, plugin: str, stage: Stage, what: str) -> None:
        super().__init__(f'plugin "{plugin}" must answer {stage.value}', value=what)
        self.plugin = plugin
        self.stage = stage
        self.what = what


class PlanError(EunomiaError):
    """A stage's answer breaks an invariant; ``stage`` names the stage."""

    def __init__(self, stage: Stage, rule: str, *, value: str | None = None, place: str | None = None) -> None:
        super().__init__(rule, value=value, place=place)
        self.stage = stage


def fault_of(plugin: str, stage: Stage, error: BaseException) -> StageFaultError:
    """Convert an exception raised by a plugin to a fault of its stage, with the line of the plugin's file."""
    return StageFaultError(plugin, stage, f"{type(error).__name__}: {error}{_line_of(error)}")


def _line_of(error: BaseException) -> str:
    """Return the innermost traceback line in the called plugin's folder, as `` (half.py:12)``; empty: unknown."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
    files = [Path(frame.f_code.co_filename) for frame in frames]
    called = next((file for file, frame in zip(files, frames, strict=True) if not _is_around(frame)), None)
    if called is None:
        return ""
    inmost = max(at for at, file in enumerate(files) if file.parent == called.parent)
    return f" ({files[inmost].name}:{lines[inmost]})"


def _is_around(frame: FrameType) -> bool:
    """Return whether a frame belongs to the core, pluggy or numpy instead of a plugin."""
    package, _, module = str(frame.f_globals.get("__name__", "")).partition(".")
    return package in ("pluggy", "numpy") or (package == "eunomia" and not module.startswith("testing."))


def mistyped(plugin: str, stage: Stage, kind: type, answer: object) -> StageFaultError:
    """Return the fault of a plugin's stage whose answer is not a ``kind``."""
    return StageFaultError(plugin, stage, f"{kind.__name__} expected, {type(answer).__name__} returned")
