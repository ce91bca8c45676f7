"""The two slowdown models of the reproduction."""

import dataclasses
from typing import Final

from eunomia.units import Locality
from eunomia_testbed.generators.themis_facts import MODELS, themis_speeds
from eunomia_testbed.performance import AnalyticModel, PerformanceModel, Setting
from eunomia_testbed.performance.speeds import part_of_gpu

SLOWDOWNS: Final = {
    "footnote": "S of footnote 3",
    "analytic": "analytic S",
}
"""Slowdown models, with their names in claims. ``footnote``: 1.1 across machines and 1.3 across racks for
network-intensive models; ``analytic``: computed by the analytic model for each model and gang size, 1 to 12 for four
K80."""


class AnalyticSlowdowns:
    """Speeds linear in GPUs (Themis, §4.3.1), divided by the analytic model's S of the gang."""

    models = MODELS

    def __init__(self) -> None:
        self._model = AnalyticModel()

    def rate(self, model: str, setting: Setting) -> float:
        """Return iterations per second, relative to one GPU.

        Raises:
            InputError: the model or GPU type is unknown.
        """
        near = dataclasses.replace(setting, locality=Locality.ISLAND, machines=1)
        slowdown = self._model.rate(model, near) / self._model.rate(model, setting)
        return part_of_gpu(setting) * setting.gpus / max(1.0, slowdown)


def speeds_of(slowdowns: str) -> PerformanceModel:
    """Return the performance model for a key of ``SLOWDOWNS``."""
    return AnalyticSlowdowns() if slowdowns == "analytic" else themis_speeds()
