"""Runs before a prepared model's forward pass: a sign of life, and in an evaluation a look for orders."""

from collections.abc import Callable
from typing import Any

from torch import nn


class Poll:
    """A forward hook of a model: a copy of the model shares it, and a pickled model leaves it behind."""

    def __init__(self, ask: Callable[[bool], None]) -> None:
        self._ask = ask

    def __call__(self, module: nn.Module, _inputs: Any) -> None:
        """PyTorch calls this before the forward pass."""
        self._ask(module.training)

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Poll":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_NoPoll, ())


class _NoPoll:
    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        return None
