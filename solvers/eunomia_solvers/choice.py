"""The plugin option that chooses between a fast algorithm and the programme as the paper states it."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from eunomia.extras import is_installed, remedy


def _installed(given: str) -> str:
    """Check at load that cvxpy is installed if ``reference`` is chosen, so that no round fails without it."""
    if given == "reference" and not is_installed("cvxpy"):
        raise ValueError(f'must be "fast" where cvxpy is not installed ({remedy("solvers")})')
    return given


SolverChoice = Annotated[Literal["fast", "reference"], AfterValidator(_installed)]
"""``reference`` solves the programme as the paper states it, in cvxpy; it needs the extra ``solvers``."""
