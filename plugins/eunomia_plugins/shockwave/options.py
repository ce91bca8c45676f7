"""The options of ``shockwave``."""

import itertools
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from eunomia import Duration, PluginOptions, Seconds, Share


class ShockwaveOptions(PluginOptions):
    """Options of ``shockwave``; the window, the round length and k are options of the valuation."""

    regularizer: Annotated[float, Field(ge=0.0, le=1e6)] = 1.0
    """λ, the weight of the makespan bound: 1e-4 to 1e-2 in §6.1, 0.1 to 10 in Appendix G."""
    by_gpus: bool = False
    """Whether the makespan bound is in GPU-seconds; equation (10) uses seconds whatever the gang size."""
    log_points: Annotated[tuple[float, ...], Field(min_length=2, max_length=1000)] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Progress values, from 0 to 1, between which the logarithm of utility is linear. With many points jobs advance
    together; with two, a round of a short job is worth more than one of a long job, so short jobs come first."""
    log_origin: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-6
    """Progress that replaces 0 in the logarithm."""
    mode: Literal["reactive", "lazy"] = "reactive"
    """Whether a change of batch size triggers a new plan (``reactive``), or is used in the next plan (``lazy``)."""
    solver: Literal["fast", "reference"] = "fast"
    """``fast``: a heuristic with a certified bound; ``reference``: the integer programme, slow for dozens of jobs."""
    gap: Share = 1e-3
    """With ``reference``: relative optimality gap at which the search ends."""
    nodes: Annotated[int, Field(ge=1)] = 10_000
    """With ``reference``: number of search nodes after which the best plan so far is used."""
    seconds: Duration = Seconds(0.0)
    """With ``reference``: a time limit, which makes a run not exactly reproducible if it is reached; 0: none."""
    ends: Literal["clock", "executor"] = "clock"
    """When rounds end: at multiples of their length (``clock``), or when the executor reports it (``executor``)."""

    @model_validator(mode="after")
    def _points_ascend(self) -> Self:
        points = self.log_points
        ascend = all(low < high for low, high in itertools.pairwise(points))
        if not (ascend and points[0] == 0.0 and points[-1] == 1.0 and points[1] > self.log_origin):
            rule = f"log_points must ascend from 0 to 1, the second of them above log_origin ({self.log_origin:g})"
            raise ValueError(f"{rule}, but got {list(points)}")
        return self
