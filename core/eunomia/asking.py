"""A round's answers: stages asked one by one, what they say checked, and a fault laid at the right door."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from eunomia.allocations import Allocation
from eunomia.answers import Answer, StageFaultError, ask, fault_of, mistyped
from eunomia.claims import Claims
from eunomia.decisions import Fault
from eunomia.invariants import PlanError, check_verdicts
from eunomia.memos import Memo
from eunomia.menus import Menus
from eunomia.offers import Offer
from eunomia.plan import Plan
from eunomia.records import Record
from eunomia.stages import Stages
from eunomia.state import State
from eunomia.units import NEVER, Seconds, Stage, Unit
from eunomia.valuations import Valuations
from eunomia.verdicts import NO_VERDICTS

_ALLOCATION: type[Answer] = Allocation
_VALUATIONS: type[Answer] = Valuations
A = TypeVar("A")
B = TypeVar("B", bound=Answer)


@dataclasses.dataclass(slots=True)
class Round:
    """What a round comes to, before it is adopted."""

    plan: Plan
    memos: dict[tuple[str, Stage], Memo] = dataclasses.field(default_factory=dict)
    records: list[tuple[str, Record]] = dataclasses.field(default_factory=list)
    answers: list[tuple[Stage, str, Answer]] = dataclasses.field(default_factory=list)
    offer: Offer | None = None
    """An offer to be opened: the round goes on when its bids are in."""
    considered: Offer | None = None
    wake_at: Seconds = NEVER
    starts_at: tuple[tuple[int, float], ...] = ()


class Asking:
    """Asks the stages of one profile.

    Args:
        state: to check answers against; not changed.
        stages: who is asked.
        told: told who is about to be asked; None: nobody is.
    """

    __slots__ = ("calls", "names", "stages", "state", "told")

    def __init__(self, state: State, stages: Stages, told: Callable[[str, Stage], None] | None) -> None:
        self.state, self.stages, self.told = state, stages, told
        self.calls = 0
        self.names = {stage: stages.names.get(stage, stage.value) for stage in Stage}
        """The plugin behind each stage."""
        if stages.refiner_names:
            self.names[Stage.REFINE] = stages.refiner_names[-1]

    def name(self, stage: Stage) -> str:
        """The plugin behind a stage."""
        return self.names[stage]

    def ask(self, stage: Stage, name: str, kind: type[A], call: Callable[..., A], *given: Any) -> A:
        """Ask a stage.

        Raises:
            StageFaultError: it raised, or answered with another type.
        """
        self.calls += 1
        if self.told is not None:
            self.told(name, stage)
        return ask(name, stage, kind, call, *given)

    def answer(self, result: Round, stage: Stage, name: str, kind: type[B], call: Callable[..., B], *given: Any) -> B:
        """Ask a stage of the round, and take memo, verdicts and record off its answer."""
        self.calls += 1
        if self.told is not None:
            self.told(name, stage)
        try:
            answer = call(*given)
        except StageFaultError:
            raise
        except (Exception, SystemExit) as error:
            raise fault_of(name, stage, error) from error
        if not isinstance(answer, kind):
            raise mistyped(name, stage, kind, answer)
        if answer.memo is not None:
            result.memos[name, stage] = answer.memo
        if kind is _ALLOCATION and answer.record is not None:  # type: ignore[union-attr]
            result.records.append((name, answer.record))  # type: ignore[union-attr]
        if answer.verdicts is not NO_VERDICTS or (kind is _VALUATIONS and type(answer.claims) is not Claims):  # type: ignore[union-attr]
            self.held(stage, self._check_verdicts, result, stage, answer)
        result.answers.append((stage, name, answer))
        return answer

    def _check_verdicts(self, result: Round, stage: Stage, answer: Answer) -> None:
        unit = _unit(result, answer)
        if answer.verdicts is not NO_VERDICTS:
            check_verdicts(self.state, stage, unit, answer.verdicts)

    def held(self, stage: Stage, check: Callable[..., A], *given: Any) -> A:
        """Check an answer; what it makes fail in the core is a fault of the plugin that gave it."""
        try:
            return check(*given)
        except (StageFaultError, PlanError) as error:
            if stage is not Stage.REFINE or isinstance(error, StageFaultError):
                raise
            what = str(error)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
        raise StageFaultError(self.name(stage), stage, what)

    def fault(self, error: StageFaultError | PlanError) -> Fault:
        """Whose fault it is, and what."""
        if isinstance(error, StageFaultError):
            return Fault(plugin=error.plugin, stage=error.stage, what=error.what)
        return Fault(plugin=self.name(error.stage), stage=error.stage, what=str(error))


def _unit(result: Round, answer: Answer) -> Unit:
    """What rows the verdicts of an answer are of; a placement's are of the allocation's unit."""
    if isinstance(answer, Menus):
        return Unit.JOB
    if isinstance(answer, Valuations | Allocation):
        return answer.claims.unit
    units = [given.claims.unit for _, _, given in result.answers if isinstance(given, Allocation)]
    return units[-1] if units else Unit.JOB
