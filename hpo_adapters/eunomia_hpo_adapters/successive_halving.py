"""Successive halving with pauses and promotions (Jamieson and Talwalkar 2016; Themis §4.3.2; ASHA, Li et al. 2020).

All trials of a phase run to the same iteration, the rung, and pause there. When the last one has arrived, the best
1/eta of them continue from their checkpoints, with up to eta times as many GPUs each, and the others end. With n trials
there are floor(log_eta n) + 1 phases, if there are enough rungs; the trials of the last phase run to their end.
``asynchronous``: a trial continues as soon as it is among the best 1/eta of those that have arrived.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Search
from eunomia_hpo_adapters.bracket import Bracket, phase_sizes
from eunomia_hpo_adapters.halving import Demand, Halving, check_rungs, check_search


class SuccessiveHalvingOptions(BaseModel):
    """Options of successive halving."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reduction_factor: int = Field(default=2, ge=2, le=64)
    """eta: one in this many trials is promoted from a rung."""
    min_iterations: int | None = Field(default=None, ge=1)
    """Iteration of the first rung; each further rung is eta times as far. None: ``rungs`` determines the rungs."""
    asynchronous: bool = False
    """Whether trials are promoted without waiting for all trials of their phase."""
    rungs: Literal["geometric", "equal_budget"] = "geometric"
    """The rungs if ``min_iterations`` is not given. ``geometric``: the last is max_iterations, and each earlier one is
    1/eta of the next. ``equal_budget``: each phase takes eta times the iterations of the one before, so that all
    phases cost the same (Themis §4.3.3)."""
    demand: Demand = "growing"
    """How many GPUs a trial can use: ``growing``: in each phase eta times as many as in the one before, from its
    minimum to its maximum (Themis §4.3.2); ``full``: its maximum in every phase (§4.3.3)."""


def geometric_rungs(max_iterations: int, phases: int, reduction_factor: int) -> list[int]:
    """Return the iteration at which each phase ends: max_iterations / eta^(phases - 1 - i), rounded."""
    return [round(max_iterations / reduction_factor ** (phases - 1 - phase)) for phase in range(phases)]


def equal_budget_rungs(max_iterations: int, phases: int, reduction_factor: int) -> list[int]:
    """Return the iteration at which each phase ends, if each takes eta times as many iterations as the one before.

    The length of the first phase is rounded down, and the last phase takes the rest: 60 iterations in three phases are
    8, 16 and 36.
    """
    parts = [reduction_factor**phase for phase in range(phases)]
    unit = max_iterations // sum(parts)
    ends = [unit * sum(parts[: phase + 1]) for phase in range(phases)]
    ends[-1] = max_iterations
    return ends


def rungs_from(min_iterations: int, max_iterations: int, phases: int, reduction_factor: int) -> list[int]:
    """Return the iteration at which each phase ends: min_iterations * eta^k, and max_iterations for the last."""
    ends = [min_iterations * reduction_factor**phase for phase in range(phases - 1)]
    return [*(end for end in ends if end < max_iterations), max_iterations]


class SuccessiveHalving(Halving):
    """Successive halving of all trials together; trials that are added later are halved among themselves."""

    options_type: ClassVar[type] = SuccessiveHalvingOptions
    grows_by_bracket: ClassVar[bool] = True

    @classmethod
    def create(cls, search: Search, options: SuccessiveHalvingOptions) -> Self:
        """See ``Tuner``.

        Raises:
            InputError: there is no metric or no max_iterations, fewer than two trials, or rungs are less than an
                iteration apart.
        """
        whole = check_search(search, "successive_halving")
        brackets, begin = [], 1
        for size in search.groups:
            bracket = Bracket(
                range(begin, begin + size),
                _ends(whole, size, options),
                reduction_factor=options.reduction_factor,
                asynchronous=options.asynchronous,
                better_first=search.better_first,
            )
            brackets.append(bracket)
            begin += size
        rungs = sorted({end for bracket in brackets for end in bracket.ends})
        return cls(search, brackets, rungs, growth=options.reduction_factor if options.demand == "growing" else 1)


def _ends(max_iterations: int, trials: int, options: SuccessiveHalvingOptions) -> Sequence[int]:
    """Return the rungs as iterations, ascending.

    Raises:
        InputError: rungs are less than an iteration apart, or the first one is beyond the end.
    """
    factor, first = options.reduction_factor, options.min_iterations
    phases = len(phase_sizes(trials, factor))
    if first is None:
        place = geometric_rungs if options.rungs == "geometric" else equal_budget_rungs
        ends = place(max_iterations, phases, factor)
        check_rungs(ends, max_iterations)
        return ends
    if options.rungs != "geometric":
        raise InputError("min_iterations must go with geometric rungs", value=f'rungs = "{options.rungs}"')
    if first >= max_iterations:
        raise InputError(f"min_iterations must be below max_iterations, {max_iterations}", value=str(first))
    return rungs_from(first, max_iterations, phases, factor)
