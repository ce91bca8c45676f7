"""Calls one stage of a profile; what it raises or answers wrongly becomes a fault of its plugin."""

from collections.abc import Callable
from typing import Any, TypeVar

from eunomia.allocations import Allocation
from eunomia.errors import EunomiaError
from eunomia.menus import Menus
from eunomia.placements import Placement
from eunomia.units import Stage
from eunomia.valuations import Valuations

A = TypeVar("A")
Answer = Menus | Valuations | Allocation | Placement


class StageFaultError(EunomiaError):
    """A stage raised, or answered with another type than its hook asks for."""

    def __init__(self, plugin: str, stage: Stage, what: str) -> None:
        super().__init__(f'plugin "{plugin}" must answer {stage.value}', value=what)
        self.plugin = plugin
        self.stage = stage
        self.what = what


def ask(plugin: str, stage: Stage, kind: type[A], call: Callable[..., A], *given: Any) -> A:
    """Ask a stage.

    Raises:
        StageFaultError: it raised, or answered with something that is no ``kind``.
    """
    try:
        answer = call(*given)
    except StageFaultError:
        raise
    except (Exception, SystemExit) as error:
        raise fault_of(plugin, stage, error) from error
    if not isinstance(answer, kind):
        raise mistyped(plugin, stage, kind, answer)
    return answer


def fault_of(plugin: str, stage: Stage, error: BaseException) -> StageFaultError:
    """What a plugin raised, as a fault of its stage."""
    return StageFaultError(plugin, stage, f"{type(error).__name__}: {error}")


def mistyped(plugin: str, stage: Stage, kind: type, answer: object) -> StageFaultError:
    """An answer that is no ``kind``, as a fault of its stage."""
    return StageFaultError(plugin, stage, f"{kind.__name__} expected, {type(answer).__name__} returned")
