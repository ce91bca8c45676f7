"""Measured rates of programs as a performance model, which the simulation of a replay uses."""

from eunomia.errors import InputError
from eunomia_testbed.performance.replay_profiles import Profiles
from eunomia_testbed.performance.speeds import Setting, part_of_gpu
from eunomia_testbed.workload.adaptation import named_model, split_model


class ProfiledSpeeds:
    """A performance model of measured programs, with model names such as ``mlp (batch size 96)``.

    Args:
        profiles: the measured rates.
    """

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._models = tuple(dict.fromkeys(named_model(rate.program, rate.batch_size) for rate in profiles.rates))

    @property
    def models(self) -> tuple[str, ...]:
        """Return the programs with their batch sizes, in the order of the profiles."""
        return self._models

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether a program was measured at a global batch size; None: at the batch size in its name."""
        family, own = split_model(model)
        return named_model(family, own if batch_size is None else int(batch_size)) in self._models

    def rate(self, model: str, setting: Setting) -> float:
        """Return a program's iterations per second in a setting; 0: it was measured only on more slots.

        Raises:
            InputError: the program was not measured at this batch size on this slot type.
        """
        family, own = split_model(model)
        batch = own if setting.batch_size is None else int(setting.batch_size)
        if batch is None:
            raise InputError("a program must have a batch size", value=model, place="profiles")
        points = self._profiles.points(family, batch, setting.gpu_type)
        if points and setting.gpus < min(points):
            return 0.0
        return self._profiles.rate(family, batch, setting.gpus, setting.gpu_type) * part_of_gpu(setting)
