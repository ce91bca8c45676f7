"""Bids for bundles of GPUs on machines, with the ρ (finish-time fairness) that a claim expects for each bundle.

A bundle names machines by class. Machines of a class have the same GPU type, rack and number of GPUs on offer, and no
bidder holds GPUs on them; each machine on which a bidder holds GPUs is a class of its own. So 512 equal machines are
one class, and the length of a bid table does not depend on the size of the cluster.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from eunomia.contract.offers import Offer
from eunomia.contract.valuations import Scores
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import Ints, Reals

MOST_ROWS = 256
"""Maximum number of rows in the bid of one claim."""
MOST_PARTS = 32
"""Maximum number of parts in one row."""


def _ints(values: npt.ArrayLike) -> Ints:
    return np.asarray(values, dtype=np.int64)


class Part(NamedTuple):
    """``gpus`` GPUs on each of ``machines`` machines of a class."""

    machine_class: int
    gpus: int
    machines: int = 1


class Bundle(NamedTuple):
    """A row of a bid: its parts, and the ρ of a claim that gets these in addition to its unexpired GPUs."""

    rho: float
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Return the number of GPUs in the bundle."""
        return sum(part.gpus * part.machines for part in self.parts)


@builds
class MachineClasses:
    """The machines on offer by class; class ``k`` consists of ``machine[start[k]:start[k + 1]]``.

    Attributes:
        start: [classes + 1] offsets into ``machine``.
        machine: machine rows, ascending within a class.
        free: [classes] GPUs on offer on each machine of the class.
        gpu_type: [classes] GPU type of the machines.
        rack: [classes] rack of the machines.
    """

    start: Ints
    machine: Ints
    free: Ints
    gpu_type: Ints
    rack: Ints

    @classmethod
    def of(
        cls,
        *,
        machine: npt.ArrayLike,
        free: npt.ArrayLike,
        gpu_type: npt.ArrayLike,
        rack: npt.ArrayLike,
        named: npt.ArrayLike = (),
    ) -> Self:
        """Group machines with GPUs on offer by GPU type, rack and free count.

        Args:
            machine: rows of machines; ``free``, ``gpu_type`` and ``rack`` have one entry for each.
            free: GPUs on offer on each machine; machines without any are left out.
            gpu_type: GPU type of each machine.
            rack: rack of each machine, or one value for all if racks make no difference.
            named: machines that form classes of their own, because a bidder holds GPUs on them.
        """
        alone = set(_ints(named).tolist())
        own = [row if row in alone else -1 for row in _ints(machine).tolist()]
        rows = np.array([gpu_type, rack, free, own, machine], dtype=np.int64)
        rows = rows[:, rows[2] > 0]
        rows = rows[:, np.lexsort((rows[4], rows[3], -rows[2], rows[1], rows[0]))]
        first = np.ones(rows.shape[1], dtype=bool)
        first[1:] = (rows[:4, 1:] != rows[:4, :-1]).any(axis=0)
        heads = first.nonzero()[0]
        return cls(
            start=_ints([*heads.tolist(), first.size]),
            machine=rows[4].copy(),
            free=rows[2, heads],
            gpu_type=rows[0, heads],
            rack=rows[1, heads],
        )

    def __len__(self) -> int:
        return int(self.free.size)

    @property
    def machines(self) -> Ints:
        """Return the number of machines in each class, [classes]."""
        return self.start[1:] - self.start[:-1]

    @property
    def gpus(self) -> int:
        """Return the total number of GPUs on offer."""
        return int(self.machines @ self.free)

    def members(self, machine_class: int) -> Ints:
        """Return the machine rows of a class."""
        return self.machine[self.start[machine_class] : self.start[machine_class + 1]]

    def without(self, machines: npt.ArrayLike) -> Self:
        """Return the same classes, in the same order, without these machines."""
        kept = ~np.isin(self.machine, _ints(machines))
        return type(self)(
            start=np.concatenate(([0], np.cumsum(kept)))[self.start].astype(np.int64),
            machine=self.machine[kept],
            free=self.free,
            gpu_type=self.gpu_type,
            rack=self.rack,
        )

    def same(self, other: Self) -> bool:
        """Return whether both objects group the same machines in the same way."""
        names = ("start", "machine", "free", "gpu_type", "rack")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)


@builds
class ByBundle(LazyFields):
    """A valuation as bid tables (Themis, Tables 2 and 3): the ρ that each claim expects with each bundle.

    Claim ``i`` has rows ``start[i]:start[i + 1]``; row ``r`` has parts ``part_start[r]:part_start[r + 1]``. A row
    uses as few machines of a class as possible: no two of its parts in a class fit on one machine. Parts of a row
    therefore never share a machine, and the locality of a row does not depend on its placement.

    Attributes:
        classes: the machines on offer.
        now: [claims] ρ with the GPUs that the claim already holds, finite and positive; for an app without GPUs see
            docs/decisions/0020.
        start: [claims + 1] offsets into the rows.
        rho: [rows] ρ with the claim's unexpired GPUs and those of the row, finite and positive; lower is better.
        part_start: [rows + 1] offsets into the parts.
        part_class: [parts] class of the machines.
        part_gpus: [parts] GPUs on each machine.
        part_machines: [parts] number of machines.
    """

    classes: MachineClasses
    now: Reals
    start: Ints
    rho: Reals
    part_start: Ints
    part_class: Ints
    part_gpus: Ints
    part_machines: Ints

    @classmethod
    def of(cls, classes: MachineClasses, now: npt.ArrayLike, bids: Sequence[Sequence[Bundle]]) -> Self:
        """Build a bid table from a list of bundles for each claim."""
        rows = [row for bid in bids for row in bid]
        parts = [part for row in rows for part in row.parts]
        columns = _ints(parts).reshape(-1, 3)
        return cls(
            classes=classes,
            now=np.asarray(now, dtype=np.float64),
            start=_ints([0, *accumulate(map(len, bids))]),
            rho=np.asarray([row.rho for row in rows], dtype=np.float64),
            part_start=_ints([0, *accumulate(len(row.parts) for row in rows)]),
            part_class=columns[:, 0].copy(),
            part_gpus=columns[:, 1].copy(),
            part_machines=columns[:, 2].copy(),
        )

    @classmethod
    def joined(cls, classes: MachineClasses, tables: Sequence[Self]) -> Self:
        """Concatenate bid tables into one table with all their claims, in order.

        Tables with other machine classes are converted to ``classes``; rows that cannot be converted are dropped.
        """
        bids = [bid for table in tables for bid in table._written_for(classes)]
        return cls.of(classes, [rho for table in tables for rho in table.now.tolist()], bids)

    def __len__(self) -> int:
        return int(self.start.size) - 1

    @property
    def sizes(self) -> Ints:
        """Return the number of GPUs in each row, [rows]."""
        total = np.zeros(self.part_gpus.size + 1, np.int64)
        total[1:] = (self.part_gpus * self.part_machines).cumsum()
        return total[self.part_start[1:]] - total[self.part_start[:-1]]

    @property
    def claim_of_row(self) -> Ints:
        """Return the index of the claim to which each row belongs, [rows]."""
        return np.arange(len(self)).repeat(self.start[1:] - self.start[:-1])

    def rows(self, claim: int) -> range:
        """Return the row numbers of a claim."""
        return range(int(self.start[claim]), int(self.start[claim + 1]))

    def parts(self, row: int) -> tuple[Part, ...]:
        """Return the parts of a row."""
        span = slice(self.part_start[row], self.part_start[row + 1])
        columns = (self.part_class[span], self.part_gpus[span], self.part_machines[span])
        return tuple(map(Part, *(column.tolist() for column in columns)))

    def bundles(self, claim: int) -> Iterator[Bundle]:
        """Yield the bundles of a claim's bid, row by row, in the form that ``of`` takes."""
        return (Bundle(float(self.rho[row]), self.parts(row)) for row in self.rows(claim))

    def select(self, claims: npt.ArrayLike) -> Self:
        """Return a table of the given claims only, in the given order."""
        chosen = _ints(claims)
        return type(self).of(self.classes, self.now[chosen], [list(self.bundles(int(claim))) for claim in chosen])

    def without(self, machines: npt.ArrayLike) -> Self:
        """Return the table without these machines; rows for which a class is now too small are dropped."""
        classes = self.classes.without(machines)
        bids = [[row for row in self.bundles(claim) if _fits(row.parts, classes)] for claim in range(len(self))]
        return type(self).of(classes, self.now, bids)

    def _written_for(self, classes: MachineClasses) -> list[list[Bundle]]:
        """Return the bids of each claim, converted to other machine classes, without rows that cannot be converted."""
        bids = [list(self.bundles(claim)) for claim in range(len(self))]
        if self.classes.same(classes):
            return bids
        home = {int(machine): kind for kind in range(len(classes)) for machine in classes.members(kind)}
        to = [_one_class(self.classes.members(kind), home) for kind in range(len(self.classes))]
        alike = [kind >= 0 and self.classes.free[old] == classes.free[kind] for old, kind in enumerate(to)]
        known = [[row for row in bid if all(alike[part.machine_class] for part in row.parts)] for bid in bids]
        moved = [[Bundle(rho, tuple(Part(to[old], *of) for old, *of in parts)) for rho, parts in bid] for bid in known]
        return [[row for row in bid if _fits(row.parts, classes)] for bid in moved]

    def replaced(self, claim: int, bid: Self) -> Self:
        """Return the table with the rows of this claim replaced by those of the single claim of ``bid``."""
        return self.joined(self.classes, [bid if one == claim else self.select([one]) for one in range(len(self))])

    def derive(self, kind: type[object]) -> object | None:
        """Return ``Scores`` that serve the claim with the largest current ρ first; None for other forms."""
        return Scores(score=-self.now) if kind is Scores else None

    def check(self, *, classes: MachineClasses | None = None, place: str | None = None) -> None:
        """Check that a bid table is valid for its offer.

        Args:
            classes: the machine classes of the offer; None: those of the table.
            place: the source of the table, for error messages.

        Raises:
            InputError: the classes are not those of the offer, a bid is too long, an offset is out of bounds, a ρ is
                not positive and finite, a class does not exist, a row requests more GPUs or machines than are on offer,
                or two parts of a row in the same class would fit on one machine.
        """
        if classes is not None and not self.classes.same(classes):
            raise _refuse("a bid must group the machines as its offer does", f"{len(self.classes)} classes", place)
        _check_shape(self, place)
        for column in (self.now, self.rho):
            bad = column[~(np.isfinite(column) & (column > 0))]
            if bad.size:
                raise _refuse("rho of a bid must be a positive number", bad[0], place)
        _check_parts(self, place)


lazy(ByBundle, "now")


def offer_classes(cluster: Cluster, offer: Offer) -> MachineClasses:
    """Group the machines of an offer into classes; the arbiter and every bidder use this grouping."""
    offered = np.bincount(cluster.machine[offer.gpus])
    machine = offered.nonzero()[0]
    return MachineClasses.of(
        machine=machine,
        free=offered[machine],
        gpu_type=cluster.machine_type[machine],
        rack=cluster.machine_rack[machine],
        named=offer.named,
    )


def _one_class(machines: Ints, home: dict[int, int]) -> int:
    """Return the index of the class that contains all these machines, or -1 if there is none."""
    kinds = {home.get(int(machine), -1) for machine in machines}
    return kinds.pop() if len(kinds) == 1 else -1


def _fits(parts: Iterable[Part], classes: MachineClasses) -> bool:
    needed = np.zeros(len(classes), dtype=np.int64)
    for part in parts:
        needed[part.machine_class] += part.machines
    return bool((needed <= classes.machines).all())


def _refuse(rule: str, value: object, place: str | None) -> InputError:
    return InputError(rule, value=str(value), place=place)


def _check_shape(table: ByBundle, place: str | None) -> None:
    """Check that offsets ascend and end at the length of their columns, and that no bid is too long."""
    ends = ((table.start, table.rho.size), (table.part_start, table.part_class.size))
    lengths = (table.now.size, table.rho.size)
    for (offsets, end), length in zip(ends, lengths, strict=True):
        if offsets.size != length + 1 or offsets[0] != 0 or offsets[-1] != end or (np.diff(offsets) < 0).any():
            raise _refuse("offsets of a bid must ascend from 0 to the end of their column", offsets[:8].tolist(), place)
    if not table.part_class.size == table.part_gpus.size == table.part_machines.size:
        raise _refuse("the parts of a bid must have a class, GPUs and machines each", table.part_class.size, place)
    for what, offsets, most in (("rows", table.start, MOST_ROWS), ("parts", table.part_start, MOST_PARTS)):
        longest = int(np.diff(offsets).max(initial=0))
        if longest > most:
            raise _refuse(f"a bid must have at most {most} {what}", longest, place)


def _check_parts(table: ByBundle, place: str | None) -> None:
    """Check that every part is on offer and that no row requests more than a class has."""
    classes, kind = table.classes, table.part_class
    if ((kind < 0) | (kind >= len(classes))).any():
        raise _refuse(f"a bid must name one of the offer's {len(classes)} classes of machines", kind.tolist(), place)
    if (np.diff(table.part_start) < 1).any():
        raise _refuse("a row of a bid must ask for something", "an empty bundle", place)
    out = (table.part_gpus < 1) | (table.part_gpus > classes.free[kind])
    if out.any():
        raise _refuse("a bid must ask for 1 to as many GPUs as a machine offers", table.part_gpus[out][0], place)
    if (table.part_machines < 1).any():
        raise _refuse("a bid must ask for at least one machine", table.part_machines.min(), place)
    row = np.repeat(np.arange(table.rho.size), np.diff(table.part_start))
    group = row * max(len(classes), 1) + kind
    keys, inverse = np.unique(group, return_inverse=True)
    machines = np.bincount(inverse, weights=table.part_machines)
    over = machines > classes.machines[keys % max(len(classes), 1)]
    if over.any():
        raise _refuse("a bid must ask for at most as many machines as its class has", int(machines[over][0]), place)
    _check_spread(table, group, place)


def _check_spread(table: ByBundle, group: Ints, place: str | None) -> None:
    """Check that no row has two parts in a class that fit on one machine."""
    order = np.lexsort((table.part_gpus, group))
    gpus, owner = table.part_gpus[order], group[order]
    head = np.ones(owner.size, dtype=bool)
    head[1:] = owner[1:] != owner[:-1]
    least = np.flatnonzero(head)
    many = table.part_machines[order][least] > 1
    following = np.minimum(least + 1, owner.size - 1)
    second = np.where(many, gpus[least], np.where(owner[following] == owner[least], gpus[following], -1))
    second = np.where(~many & (following == least), -1, second)
    fits = (second > 0) & (gpus[least] + second <= table.classes.free[table.part_class[order][least]])
    if fits.any():
        first = int(np.flatnonzero(fits)[0])
        value = f"{gpus[least][first]} and {second[first]} GPUs apart"
        raise _refuse("a bundle must put what fits one machine of a class on one machine", value, place)
