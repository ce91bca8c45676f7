"""The cells that ``reproduce afs`` runs."""

import dataclasses

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.reproduce.afs.cells import ELASTIC, AfsCell, AfsFigures
from eunomia_testbed.reproduce.paper import Claim, Runs

ORDER = ("0e4a51", "6c71a0", "b436b2", "e13805", "6214e9", "7f04ca", "103959", "ee9e8c", "2869ce", "11cb48", "ed69ec")
"""The clusters of Table 3, from #1 to #11."""


@value
class AfsGrid:
    """The settings of the reproduction, fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0,)
    clusters: str = "2869ce,b436b2"
    """Clusters of Table 3: #9 has few jobs for its GPUs, #3 has many. All eleven take hours."""
    trace: str = "philly_full_reconstructed.csv.gz"
    """Philly's trace with the models that the authors drew: not part of Eunomia."""
    scaling: str = "afs_scaling.csv"
    """The authors' seconds per step by GPUs: not part of Eunomia."""
    start_seconds: float = 30.0
    """Seconds that a restart costs in the claims about costs; Figure 1 shows tens of seconds."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the clusters.

        Raises:
            InputError: Table 3 has no such cluster.
        """
        names = tuple(part.strip() for part in self.clusters.split(","))
        for name in names:
            if name not in ORDER:
                rule = f"clusters must be some of {', '.join(ORDER)}, separated by commas"
                raise InputError(rule, value=f'"{name}"', place="--set clusters")
        return names

    def cell(self, policy: str, cluster: str, seed: int) -> AfsCell:
        """Return a cell without costs."""
        return AfsCell(policy=policy, seed=seed, cluster=cluster, trace=self.trace, scaling=self.scaling)

    def packed(self, policy: str, cluster: str, seed: int) -> AfsCell:
        """Return a cell in which elastic policies round sizes to powers of two or whole machines."""
        return dataclasses.replace(self.cell(policy, cluster, seed), packing=policy in ELASTIC)

    def costly(self, policy: str, cluster: str, seed: int) -> AfsCell:
        """Return a cell in which each start costs time."""
        return dataclasses.replace(self.cell(policy, cluster, seed), start_seconds=self.start_seconds)


def number_of(cluster: str) -> str:
    """Return a number such as ``#9`` for the ninth cluster of Table 3."""
    return f"#{ORDER.index(cluster) + 1}"


AfsRuns = Runs[AfsGrid, AfsCell, AfsFigures]
AfsClaim = Claim[AfsGrid, AfsCell, AfsFigures]
