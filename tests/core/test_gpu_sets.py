"""Sets of a few GPUs are what numpy's set functions give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eunomia.model.gpu_sets import joined, without

_SETS = st.frozensets(st.integers(0, 12), max_size=6).map(sorted)


@given(_SETS, _SETS)
def test_set_operations_on_gpus_equal_those_of_numpy(one: list[int], other: list[int]) -> None:
    assert without(one, other) == np.setdiff1d(one, other).tolist()
    assert joined(one, other) == np.union1d(one, other).tolist()
