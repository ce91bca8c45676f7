"""Small instances for tests of the family, by hand and at random."""

import numpy as np
from hypothesis import strategies as st

from eunomia_plugins.gavel.instance import Instance


def instance(
    rates: list[list[float]],
    *,
    gpus: list[int] | None = None,
    capacity: list[int] | None = None,
    weight: list[float] | None = None,
) -> Instance:
    """Jobs by their rates; by default of one GPU and weight 1, on one GPU of each type."""
    rate = np.array(rates, float)
    jobs, types = rate.shape
    size = np.array(gpus or [1] * jobs, float)
    there = np.array(capacity or [1] * types, float)
    able = (rate > 0.0) & (size[:, None] <= there)
    return Instance(
        jobs=np.arange(jobs, dtype=np.int32),
        gpus=size,
        able=able,
        rate=np.where(able, rate, 0.0),
        weight=np.array(weight or [1.0] * jobs),
        capacity=there,
    )


@st.composite
def instances(draw: st.DrawFn, *, most_types: int = 3) -> Instance:
    """Up to six jobs, some of them equal, each of which runs on some type."""
    types = draw(st.integers(1, most_types))
    capacity = draw(st.lists(st.integers(1, 6), min_size=types, max_size=types))
    kinds = draw(
        st.lists(
            st.tuples(
                st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.7]), min_size=types, max_size=types), st.integers(1, 4)
            ),
            min_size=1,
            max_size=4,
        )
    )
    picked = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    made = instance([list(rates) for rates, _ in picked], gpus=[size for _, size in picked], capacity=capacity)
    kept = np.asarray(made.able.any(axis=1))
    if not kept.any():
        return instance([[1.0] * types], capacity=capacity)
    return made.only(kept)


def fits(made: Instance, share: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> bool:
    """Whether shares are an allocation (§3.1)."""
    return bool(
        (share >= -1e-9).all()
        and (share.sum(axis=1) <= 1.0 + 1e-6).all()
        and (made.gpus @ share <= made.capacity + 1e-6).all()
        and (share[~made.able] <= 1e-9).all()
    )
