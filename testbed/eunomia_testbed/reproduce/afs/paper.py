"""AFS for ``eunomia reproduce``: the settings, and the numbers to which its rows refer."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.reproduce.afs.cells import (
    CLUSTER,
    ELASTIC,
    POLICIES,
    QUARTERS,
    AfsCell,
    AfsFigures,
    files_of,
    readings_of,
    recipe_of,
    run_cell,
)
from eunomia_testbed.reproduce.afs.two_jobs import equal_shares, in_turn
from eunomia_testbed.reproduce.claims import RowPaper, paper_of
from eunomia_testbed.reproduce.paper import setting
from eunomia_testbed.reproduce.rows import Fields, read_rows

ORDER: Final = (
    *("0e4a51", "6c71a0", "b436b2", "e13805", "6214e9", "7f04ca"),
    *("103959", "ee9e8c", "2869ce", "11cb48", "ed69ec"),
)
"""The clusters of Table 3, from #1 to #11."""
CONTENDED: Final = tuple(ORDER[number - 1] for number in (1, 2, 3, 5, 6, 8))
"""The clusters of §5.2 whose traces launch many jobs within a short interval."""


@value
class AfsGrid:
    """The settings of the reproduction, which are fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0,)
    clusters: str = setting(
        "2869ce,e13805,ed69ec",
        "Clusters of Table 3 for every policy but Tiresias-L and Themis: #9, #4 and #11. All eleven take hours.",
    )
    order_clusters: str = setting(
        "0e4a51,b436b2,7f04ca,103959,ee9e8c",
        "Further clusters of the rows that need SRTF, SRSF, AFS-L and AFS-P alone: #1, #3, #6, #7 and #8.",
    )
    tiresias_clusters: str = setting(
        "e13805,103959,ed69ec",
        "Clusters of the rows with Themis, or with Tiresias-L, which takes hours where wide gangs wait in long queues.",
    )
    trace: str = setting(
        "philly_full_reconstructed.csv.gz",
        "The file of Philly's trace with the models that the authors drew: not part of Eunomia.",
    )
    scaling: str = setting("afs_scaling.csv", "The file of the authors' seconds per step by GPUs: not part of Eunomia.")
    start_seconds: float = setting(
        30.0, "What a start or restart takes in the rows named Costs; Figure 1 shows tens of seconds.", least=0
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the selected clusters.

        Raises:
            InputError: Table 3 has no such cluster.
        """
        return _clusters(self.clusters, "clusters")

    @property
    def each_cluster(self) -> list[Fields]:
        """Return the selected clusters as settings of a row; raise InputError for one that is not in Table 3."""
        return _settings(self.names)

    @property
    def with_tiresias(self) -> list[Fields]:
        """Return the clusters for rows that include Tiresias-L, as settings of a row.

        Raises:
            InputError: Table 3 has no such cluster.
        """
        return _settings(_clusters(self.tiresias_clusters, "tiresias_clusters"))

    @property
    def with_orders(self) -> list[Fields]:
        """Return the selected clusters and ``order_clusters``, for rows with cheap policies only, as settings of a row.

        Raises:
            InputError: Table 3 has no such cluster.
        """
        further = _clusters(self.order_clusters, "order_clusters") if self.order_clusters else ()
        return _settings([*self.names, *further])

    @property
    def contended(self) -> list[Fields]:
        """Return the selected clusters that are in ``CONTENDED`` as settings of a row."""
        return self._of(CONTENDED)

    @property
    def third(self) -> list[Fields]:
        """Return cluster #3 as settings of a row, if it is selected."""
        return self._of(ORDER[2:3])

    @property
    def ninth(self) -> list[Fields]:
        """Return cluster #9 as settings of a row, if it is selected."""
        return self._of(ORDER[8:9])

    def _of(self, known: Collection[str]) -> list[Fields]:
        return [one for one in self.with_orders if one["cluster"] in known]


def _clusters(text: str, key: str) -> tuple[str, ...]:
    """Parse a comma-separated list of clusters of Table 3.

    Raises:
        InputError: Table 3 has no such cluster.
    """
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in ORDER:
            rule = f"{key} must be some of {', '.join(ORDER)}, separated by commas"
            raise InputError(rule, value=f'"{name}"', place=f"--set {key}")
    return names


def _settings(names: Iterable[str]) -> list[Fields]:
    """Return clusters as settings of a row, in the order of Table 3."""
    return [{"cluster": name, "label": number_of(name)} for name in sorted(set(names), key=ORDER.index)]


def number_of(cluster: str) -> str:
    """Return the number of a cluster in Table 3, such as ``#9``."""
    return f"#{ORDER.index(cluster) + 1}"


def make_cell(grid: AfsGrid, fields: Fields, seed: int) -> AfsCell:
    """Return a cell; packing is off for policies that do not set job sizes."""
    packing = fields.get("packing", False) and fields["policy"] in ELASTIC
    return AfsCell(seed=seed, trace=grid.trace, scaling=grid.scaling, **{**fields, "packing": packing})


def quarter(number: int) -> Callable[[AfsFigures], float]:
    """Return a function that returns the mean JCT of a quarter of the jobs, counted from the shortest."""
    return lambda one: one.jct_by_length_seconds[number]


NUMBERS: Final[Mapping[str, Callable[[AfsFigures], float]]] = {
    "mean JCT": lambda one: one.mean_jct_seconds / 3600.0,
    "mean JCT in days": lambda one: one.mean_jct_seconds / 86_400.0,
    "p99 of JCT": lambda one: one.p99_jct_seconds,
    "restarts": lambda one: float(one.restarts),
    "reconfigurations": lambda one: float(one.restarts + one.resizes),
    "queue length": lambda one: one.queue,
    "cluster efficiency": lambda one: one.efficiency,
    "blocking index": lambda one: one.blocking,
    **{f"mean JCT, quarter {number + 1}": quarter(number) for number in range(QUARTERS)},
}
"""Functions from a cell's results to a number, by the name that rows of claims use."""


ROWS: Final[RowPaper[Any, Any, Any]] = RowPaper(
    file=read_rows(Path(__file__).with_name("claims.toml")),
    cell=make_cell,
    numbers=NUMBERS,
    recipe=recipe_of,
    draws=lambda grid: grid.seeds != (0,),
    group=lambda cell: number_of(cell.cluster),
    computed={"two jobs in turn": in_turn, "two jobs with equal shares": equal_shares},
)
PAPER: Final = paper_of(
    ROWS,
    grid=AfsGrid,
    figures=AfsFigures,
    run=run_cell,
    facts=lambda grid: {
        "names": ", ".join(grid.names),
        "cluster": CLUSTER,
        "orders": ", ".join(number_of(one["cluster"]) for one in grid.with_orders),
        "tiresias": ", ".join(number_of(one["cluster"]) for one in grid.with_tiresias),
        "sizes": ", ".join(f"{name} {policy.sizes}" for name, policy in POLICIES.items()),
    },
    shows={"mean JCT": "h", "restarts": ""},
    hidden=("trace", "scaling"),
    files=lambda cell: (*files_of(cell.trace, cell.scaling), *readings_of(cell)),
)
