"""The kinds of objects that ``prepare`` registers: how each is captured at a step boundary, and restored.

``capture`` is cheap and returns a function that returns the state at the capture: what only ``optimizer.step()``
changes (parameters, the optimizer's tensors) is read when the function is called, the rest is copied at once. The
function raises ``ChangedError`` if anything else has changed the part that is read late.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

State = Callable[[], Any]


class ChangedError(Exception):
    """Something other than an optimizer step changed parameters after the last step boundary."""


class Kept(Protocol):
    """A registered object whose state is captured and restored; a protocol."""

    kind: str

    def capture(self) -> State:
        """Return a function that returns the state at this moment."""
        ...

    def restore(self, state: Any) -> None:
        """Restore a state that a function from ``capture`` returned."""
        ...


class Stateful(Protocol):
    """An object with ``state_dict`` and ``load_state_dict``, like those of PyTorch."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Set the state."""
        ...


class KeptModel:
    """A trained module: parameters are read at the save, buffers (such as BatchNorm's) are copied at the capture."""

    def __init__(self, model: nn.Module) -> None:
        self.module: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
        self.kind = type(self.module).__name__

    def capture(self) -> State:
        """Copy the buffers; parameters are read when the state is requested."""
        buffers = {name: buffer.detach().clone() for name, buffer in self.module.named_buffers()}
        versions = _versions(self.module.parameters())

        def state() -> Any:
            _check(versions, self.module.parameters())
            values = self.module.state_dict()
            values.update({name: buffers[name] for name in buffers.keys() & values.keys()})
            return values

        return state

    def restore(self, state: Any) -> None:
        """Load parameters and buffers in place."""
        self.module.load_state_dict(state)


class KeptOptimizer:
    """An optimizer: tensors are read at the save; its groups, which schedulers change, are copied at the capture."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.kind = type(optimizer).__name__

    def capture(self) -> State:
        """Copy the groups; tensors are read when the state is requested."""
        groups = copy.deepcopy(self.optimizer.state_dict()["param_groups"])
        versions = _versions(_tensors(self.optimizer))

        def state() -> Any:
            _check(versions, _tensors(self.optimizer))
            return {**self.optimizer.state_dict(), "param_groups": groups}

        return state

    def restore(self, state: Any) -> None:
        """Load groups and tensors."""
        self.optimizer.load_state_dict(state)


class KeptOther:
    """A scheduler, scaler, averaged model or any other object with a state, which is copied."""

    def __init__(self, thing: Stateful) -> None:
        self.thing = thing
        self.kind = type(thing).__name__

    def capture(self) -> State:
        """Copy the whole state."""
        values = copy.deepcopy(self.thing.state_dict())
        return lambda: values

    def restore(self, state: Any) -> None:
        """Load a copy, since some objects keep a reference to the given state."""
        self.thing.load_state_dict(copy.deepcopy(state))


def is_trained(model: nn.Module) -> bool:
    """Return whether the module has parameters that a step can change."""
    return any(parameter.requires_grad for parameter in model.parameters())


def _tensors(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    for values in optimizer.state.values():
        yield from (value for value in values.values() if isinstance(value, torch.Tensor))


def _versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    return [tensor._version for tensor in tensors]


def _check(versions: list[int], tensors: Iterable[torch.Tensor]) -> None:
    if _versions(tensors) != versions:
        raise ChangedError
