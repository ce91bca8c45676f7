"""The input of OEF's programmes: claims with speedups and weights, and GPUs by type; merges equal claims."""

import numpy as np

from eunomia import PluginError
from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals


@builds
class Groups:
    """The claims that share GPUs of several types.

    Attributes:
        speedup: [claim, type] speed of one GPU in the claim's own unit, such as its slowest type; 0: the claim cannot
            run on the type. Each claim can run on some type.
        weight: [claim] weight, positive.
        gpus: [type] number of GPUs, at least one in total.
    """

    speedup: Reals
    weight: Reals
    gpus: Reals


def check(groups: Groups, names: list[str], types: tuple[str, ...]) -> None:
    """Check that the input of a programme is valid.

    Args:
        groups: the claims.
        names: [claim] name of each.
        types: names of the GPU types.

    Raises:
        PluginError: a speedup is negative or not a number, or a weight is not positive.
    """
    wrong = np.argwhere(~(np.isfinite(groups.speedup) & (groups.speedup >= 0.0)))
    if wrong.size:
        claim, kind = wrong[0].tolist()
        place = f"{names[claim]} on {types[kind]}"
        raise PluginError(
            "a speedup must be a number of 0 or more", value=str(groups.speedup[claim, kind]), place=place
        )
    light = np.flatnonzero(~(np.isfinite(groups.weight) & (groups.weight > 0.0)))
    if light.size:
        claim = int(light[0])
        raise PluginError("a weight must be a number above 0", value=str(groups.weight[claim]), place=names[claim])


def merged(groups: Groups) -> tuple[Groups, Ints]:
    """Merge claims with equal speedups into one with the sum of their weights, which leaves the optimum unchanged.

    Returns:
        The merged claims, in order of speedups, and for each claim the index of its merged claim.
    """
    speedup, index = np.unique(groups.speedup, axis=0, return_inverse=True)
    index = index.ravel()
    weight: Reals = np.bincount(index, weights=groups.weight, minlength=speedup.shape[0]).astype(float)
    return Groups(speedup=speedup, weight=weight, gpus=groups.gpus), index


def divided(shares: Reals, groups: Groups, whole: Groups, index: Ints) -> Reals:
    """Return the shares of the original claims, [claim, type], by splitting those of merged claims by weight."""
    part = groups.weight / whole.weight[index]
    found: Reals = shares[index] * part[:, None]
    return found
