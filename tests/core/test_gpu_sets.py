"""Sets of a few GPUs are what numpy's set functions give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eunomia.model.gpu_sets import joined, within, without

_SETS = st.frozensets(st.integers(0, 12), max_size=6).map(lambda gpus: np.array(sorted(gpus), dtype=np.int64))


@given(_SETS, _SETS)
def test_gpu_sets_equal_those_of_numpy(
    one: "np.ndarray[tuple[int], np.dtype[np.int64]]", other: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> None:
    for found, expected in (
        (without(one, other), np.setdiff1d(one, other)),
        (within(one, other), np.intersect1d(one, other)),
        (joined(one, other), np.union1d(one, other)),
    ):
        assert found.tolist() == expected.tolist()
        assert found.dtype == np.int64
