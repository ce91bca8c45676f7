"""Hand-built inputs of one stage, by job name, for tests without the earlier stages.

```python
town = World("1x4 V100").job("a/1").job("b/1", gpus=(1, 2))
menus = menus_of(town, {"a/1": [MenuPoint(1, 2.0)], "b/1": [MenuPoint(1, 1.0, cpus=2.0), MenuPoint(1, 1.5, cpus=4.0)]})
values = values_by_size(town, {"a/1": {1: -60.0}, "b/1": {1: -90.0, 2: -50.0}}, unit=SizeUnit.SECONDS_LEFT)
grants = grants_to(town, {"a/1": 1, "b/1": 2}, standby=["b/1"])
```
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eunomia.contract.allocations import Allocation, Grants
from eunomia.contract.claims import Claims
from eunomia.contract.menus import Menus, curve_points
from eunomia.contract.valuations import BySize, Valuations
from eunomia.testing.builders import World
from eunomia.units import NONE, SizeUnit, Unit


class MenuPoint(NamedTuple):
    """A point of a job's menu; see ``CurvePoints``."""

    gpus: int
    rate: float
    cpus: float = float("nan")
    memory_gib: float = float("nan")
    gpu_type: int = NONE
    locality: int = NONE


def menus_of(world: World, points: Mapping[str, Sequence[MenuPoint]]) -> Menus:
    """Build menus with a separate curve for each named job, sorted by GPUs; other jobs have no menu."""
    curve = np.full(world.snapshot().jobs.most.size, NONE, np.int32)
    rows = []
    for number, (job, mine) in enumerate(points.items()):
        curve[world.row(job)] = number
        rows += [(number, *point) for point in sorted(mine, key=lambda point: point.gpus)]
    columns = np.array(rows, float).reshape(-1, 7).T
    of, gpus, rate, cpus, memory_gib, gpu_type, locality = columns
    made = curve_points(
        of.astype(np.int32),
        gpus.astype(np.int64),
        rate=rate,
        amounts=(cpus, memory_gib),
        gpu_type=gpu_type.astype(np.int32),
        locality=locality.astype(np.int32),
    )
    return Menus(curve=curve, points=made)


def values_by_size(
    world: World, values: Mapping[str, Mapping[int, float]], *, unit: SizeUnit = SizeUnit.UTILITY
) -> Valuations:
    """Build a valuation of jobs with values by number of GPUs; higher is better."""
    rows = [(claim, gpus, value) for claim, mine in enumerate(values.values()) for gpus, value in sorted(mine.items())]
    claim, gpus, value = np.array(rows, float).reshape(-1, 3).T
    form = BySize(claim=claim.astype(np.int32), gpus=gpus.astype(np.int64), value=value, unit=unit)
    return Valuations(claims=_claims(world, list(values)), forms=(form,))


def grants_to(world: World, gpus: Mapping[str, int], *, standby: Sequence[str] = ()) -> Allocation:
    """Build an allocation of whole GPUs to jobs, in order of service; standby jobs come after the others."""
    names = list(gpus)
    ordered = [claim for claim, name in enumerate(names) if name not in standby and gpus[name] > 0]
    return Allocation(
        claims=_claims(world, names),
        amount=Grants(gpus=np.array(list(gpus.values()), np.int64)),
        order=np.array(ordered, np.int32),
        standby=np.array([names.index(name) for name in standby], np.int32) if standby else None,
    )


def _claims(world: World, jobs: Sequence[str]) -> Claims:
    return Claims(unit=Unit.JOB, rows=np.array([world.row(job) for job in jobs], np.int32))
