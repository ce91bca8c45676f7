"""Hyperband (Li, Jamieson, DeSalvo, Rostamizadeh and Talwalkar 2018, Algorithm 1): brackets of successive halving.

Brackets trade the number of trials against the length of their first phase: the widest starts many trials with a short
first phase, the narrowest trains a few from start to end. Here brackets run concurrently, each with its own trials.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Search
from eunomia_hpo_adapters.bracket import Bracket, phase_sizes
from eunomia_hpo_adapters.halving import Demand, Halving, check_rungs, check_search
from eunomia_hpo_adapters.successive_halving import geometric_rungs


class HyperbandOptions(BaseModel):
    """Options of Hyperband."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_iterations: int = Field(ge=1)
    """r: the iteration before which no trial is judged; R is max_iterations."""
    reduction_factor: int = Field(default=3, ge=2, le=64)
    """eta: one in this many trials is promoted from a rung."""
    asynchronous: bool = False
    """Whether trials are promoted without waiting for all trials of their phase (ASHA in each bracket)."""
    demand: Demand = "growing"
    """How many GPUs a trial can use: ``growing``: on the way to each rung eta times as many as to the one before;
    ``full``: always its maximum."""


def largest_s(min_iterations: int, max_iterations: int, reduction_factor: int) -> int:
    """Return s_max, the largest s for which min_iterations * eta^s is at most max_iterations."""
    count = 0
    while min_iterations * reduction_factor ** (count + 1) <= max_iterations:
        count += 1
    return count


def bracket_sizes(brackets: int, reduction_factor: int) -> list[int]:
    """Return the size n of each bracket, the widest first: ceil((s_max + 1) / (s + 1) * eta^s) for s = s_max to 0."""
    return [-(-brackets * reduction_factor**s // (s + 1)) for s in reversed(range(brackets))]


def shares(trials: int, sizes: list[int]) -> list[int]:
    """Divide trials in proportion to sizes by largest remainders, wider brackets first; each gets at least one."""
    whole = sum(sizes)
    exact = [trials * size / whole for size in sizes]
    given = [max(int(share), 1) for share in exact]
    order = sorted(range(len(sizes)), key=lambda index: (given[index] - exact[index], index))
    for index in order * 2:
        if sum(given) < trials:
            given[index] += 1
    while sum(given) > trials:
        given[given.index(max(given))] -= 1
    return given


def _divided(groups: Sequence[int], count: int, reduction_factor: int) -> Iterator[tuple[int, int]]:
    """Yield each bracket's number in the paper's order (0: the widest) and its size, group by group.

    An added group with fewer trials than there are brackets forms one bracket, of the widest kind.
    """
    for trials in groups:
        if trials < count:
            yield 0, trials
        else:
            yield from enumerate(shares(trials, bracket_sizes(count, reduction_factor)))


class Hyperband(Halving):
    """Brackets of successive halving over the trials of one search; added trials get brackets of their own."""

    options_type: ClassVar[type] = HyperbandOptions

    @classmethod
    def trials_by_default(cls, options: HyperbandOptions, max_iterations: int) -> int:
        """Return the total number of trials in the paper's brackets."""
        top = largest_s(options.min_iterations, max_iterations, options.reduction_factor)
        return sum(bracket_sizes(top + 1, options.reduction_factor))

    @classmethod
    def create(cls, search: Search, options: HyperbandOptions) -> Self:
        """See ``Tuner``.

        Raises:
            InputError: there is no metric or no max_iterations, fewer trials than brackets, or no room for two rungs.
        """
        whole, factor = check_search(search, "hyperband"), options.reduction_factor
        count = largest_s(options.min_iterations, whole, factor) + 1
        if count == 1:
            rule = f"min_iterations must be at most max_iterations / reduction_factor, {whole // factor}"
            raise InputError(rule, value=str(options.min_iterations))
        if search.groups[0] < count:
            rule = f"trials must be at least one for each of hyperband's {count} brackets"
            raise InputError(rule, value=str(search.groups[0]))
        rungs = geometric_rungs(whole, count, factor)
        check_rungs(rungs, whole)
        brackets, first = [], 1
        for index, size in _divided(search.groups, count, factor):
            # A bracket with fewer trials than the paper's has no phase in which no trial would be left.
            phases = min(count - index, len(phase_sizes(size, factor)))
            ends = [*rungs[index : index + phases - 1], whole]
            brackets.append(
                Bracket(
                    range(first, first + size),
                    ends,
                    reduction_factor=factor,
                    asynchronous=options.asynchronous,
                    better_first=search.better_first,
                )
            )
            first += size
        return cls(search, brackets, rungs, growth=factor if options.demand == "growing" else 1)
