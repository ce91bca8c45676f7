"""Errors are the same in another process: those of simulations reach the command that started them."""

import pickle

import pytest

from eunomia.errors import EunomiaError, InputError, InputErrors, PluginError, RunErrors
from eunomia.round.answers import PlanError
from eunomia.units import Stage

LEASE = InputError("lease must be positive", value="-5s", place="policy.toml")


@pytest.mark.parametrize(
    "error",
    [
        LEASE,
        InputErrors([LEASE, InputError("every must be given")]),
        RunErrors([LEASE]),
        PluginError("a speedup must be a number of 0 or more", value="nan", place="u1 on V100"),
        PlanError(Stage.PLACEMENT, "a job must be retuned once", value="[1 1]"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_unchanged_after_it_was_pickled_for_another_process(error: EunomiaError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.exit_code) == (type(error), str(error), error.exit_code)
    assert vars(again).keys() == vars(error).keys()
