"""The base of every generator's options."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from eunomia.contract.options import Duration, PluginOptions, Share
from eunomia_testbed.generators.drawing import check_chances

__all__ = ["Chances4", "Chances5", "Count", "Duration", "GeneratorOptions", "Path", "Share"]

MOST_JOBS = 1_000_000


class GeneratorOptions(PluginOptions):
    """The base of a generator's options: frozen, without extra keys; an option's docstring is its description."""


Count = Annotated[int, Field(ge=1, le=MOST_JOBS)]
Chances4 = Annotated[tuple[float, ...], AfterValidator(lambda given: check_chances(given, 4))]
"""Probabilities of gangs of 1, 2, 4 and 8 GPUs."""
Chances5 = Annotated[tuple[float, ...], AfterValidator(lambda given: check_chances(given, 5))]
"""Probabilities of gangs of 1, 2, 4, 8 and 16 GPUs."""
