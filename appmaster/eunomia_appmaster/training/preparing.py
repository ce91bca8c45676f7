"""Prepares each kind of object for ``Run.prepare``, and lists the objects that a run has prepared."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from eunomia_appmaster.training.accumulation import Accumulation
from eunomia_appmaster.training.batches import Division
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.keeper import Keeper
from eunomia_appmaster.training.kept import KeptModel, KeptOptimizer, KeptOther, is_trained
from eunomia_appmaster.training.live.fitness import Fitness
from eunomia_appmaster.training.live.gang import LiveGang
from eunomia_appmaster.training.live.model import LiveModel
from eunomia_appmaster.training.loader import Pace, PreparedLoader
from eunomia_appmaster.training.misuse import MisuseError
from eunomia_appmaster.training.poll import Poll


class PreparedObjects:
    """The prepared objects of a run.

    Args:
        gang: this worker's gang.
        keeper: saves and restores the objects.
        accumulation: the run's gradient accumulation.
        pace: the part of the run that loaders call.
        on_forward: called before each forward pass of a model.
        on_step: called after each step of an optimizer.
    """

    def __init__(
        self,
        gang: Gang,
        keeper: Keeper,
        accumulation: Accumulation,
        *,
        pace: Pace,
        on_forward: Callable[[bool], None],
        on_step: Callable[[Optimizer, Any, Any], None],
    ) -> None:
        self._gang, self._keeper, self._accumulation = gang, keeper, accumulation
        self._pace, self._on_forward, self._on_step = pace, on_forward, on_step
        self._fitness = Fitness(gang)
        self.models: list[nn.Module] = []
        self.loaders: list[PreparedLoader] = []
        self.optimizers: list[Optimizer] = []

    @property
    def counted(self) -> Optimizer | None:
        """The optimizer whose steps are counted: the first one."""
        return self.optimizers[0] if self.optimizers else None

    def add(self, thing: Any, division: Division, ddp: dict[str, Any]) -> Any:
        """Prepare an object, and return the object that the script uses in its place.

        Raises:
            MisuseError: the object has no state, or is a loader that cannot be split.
        """
        self._fitness.check(thing, ddp)
        if isinstance(thing, DataLoader):
            return self._loader(thing, division)
        if isinstance(thing, AveragedModel):  # a wrapper would hide `update_parameters`, and has no gradient to share
            self._keeper.add(KeptModel(thing.to(self._gang.device)))
            return thing
        if isinstance(thing, nn.Module) and is_trained(thing):
            return self._model(thing, division, ddp)
        if isinstance(thing, nn.Module):
            thing.to(self._gang.device)
        if isinstance(thing, Optimizer):
            return self._optimizer(thing, division)
        if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
            rule = "prepare() must be given models, loaders, or objects with state_dict and load_state_dict"
            raise MisuseError(rule, value=type(thing).__name__, place="prepare()")
        self._keeper.add(KeptOther(thing))
        if division.accumulates or self._gang.live:
            self._accumulation.gate_other(thing)
        return thing

    def _loader(self, loader: DataLoader[Any], division: Division) -> PreparedLoader:
        prepared = PreparedLoader(
            loader,
            place=self._keeper.place.loader(len(self.loaders)),
            index=len(self.loaders),
            division=division,
            accumulation=self._accumulation,
            pace=self._pace,
        )
        self.loaders.append(prepared)
        return prepared

    def _model(self, model: nn.Module, division: Division, ddp: dict[str, Any]) -> nn.Module:
        device = self._gang.device
        model.to(device)
        self._keeper.add(KeptModel(model))
        if isinstance(self._gang, LiveGang) and not self._fitness.fixed:
            self._gang.same([*model.parameters(), *model.buffers()])
            model = LiveModel(model, self._gang)
        elif self._gang.size > 1 and not isinstance(model, DistributedDataParallel):
            model = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None, **ddp)
        if not division.whole or self._gang.live:
            self._accumulation.weigh(model)
        if division.accumulates:
            self._accumulation.gate_model(model)
        model.register_forward_pre_hook(Poll(self._on_forward))
        self.models.append(model)
        return model

    def _optimizer(self, optimizer: Optimizer, division: Division) -> Optimizer:
        if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__):
            rule = "prepare() must be given optimizers of which each worker has the whole state"
            raise MisuseError(rule, value=type(optimizer).__name__, place="prepare()")
        self._keeper.add(KeptOptimizer(optimizer))
        if division.accumulates or self._gang.live:
            self._accumulation.gate_optimizer(optimizer)
        self.optimizers.append(optimizer)
        optimizer.register_step_post_hook(self._on_step)
        return optimizer
