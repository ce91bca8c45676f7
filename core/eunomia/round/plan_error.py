"""The error of a stage whose answer breaks an invariant."""

from eunomia.errors import EunomiaError
from eunomia.units import Stage


class PlanError(EunomiaError):
    """A stage's answer breaks an invariant; ``stage`` names the stage."""

    def __init__(self, stage: Stage, rule: str, *, value: str | None = None, place: str | None = None) -> None:
        super().__init__(rule, value=value, place=place)
        self.stage = stage
