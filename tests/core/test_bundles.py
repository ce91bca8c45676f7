"""Bid tables: classes of machines, the way a table is built and taken apart, and what is refused."""

import dataclasses

import numpy as np
import pytest

from eunomia.contract.bundles import MOST_ROWS, Bundle, ByBundle, MachineClasses, Part, offer_classes
from eunomia.contract.claims import Claims
from eunomia.contract.offers import Offer
from eunomia.contract.valuations import Scores, Valuations
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.units import OfferId, Scope, Seconds, Unit


def four_classes() -> MachineClasses:
    """Machines 0-2 of 4 free (1 named), 3 of 2 free, 4 of another type, 5 with nothing free."""
    return MachineClasses.of(
        machine=[0, 1, 2, 3, 4, 5],
        free=[4, 4, 4, 2, 4, 0],
        gpu_type=[0, 0, 0, 0, 1, 1],
        rack=[0] * 6,
        named=[1],
    )


def table(*parts: Part, rho: float = 0.5) -> ByBundle:
    return ByBundle.of(four_classes(), [1.0], [[Bundle(rho, parts)]])


def test_indistinguishable_machines_form_one_class() -> None:
    classes = four_classes()
    groups = [classes.members(k).tolist() for k in range(len(classes))]
    assert groups == [[0, 2], [1], [3], [4]]
    assert classes.free.tolist() == [4, 4, 2, 4]
    assert classes.gpu_type.tolist() == [0, 0, 0, 1]
    assert classes.gpus == 18


def test_machines_in_different_racks_form_different_classes() -> None:
    classes = MachineClasses.of(machine=[0, 1], free=[4, 4], gpu_type=[0, 0], rack=[0, 1])
    assert len(classes) == 2


def test_a_table_can_be_taken_apart_and_rebuilt() -> None:
    classes = four_classes()
    bids = [[Bundle(0.5, (Part(0, 4, 2),)), Bundle(0.7, (Part(0, 4), Part(2, 2)))], [], [Bundle(0.9, (Part(3, 1),))]]
    made = ByBundle.of(classes, [1.0, 2.0, 3.0], bids)
    made.check()
    assert made.sizes.tolist() == [8, 6, 1]
    assert made.claim_of_row.tolist() == [0, 0, 2]
    assert [list(made.bundles(claim)) for claim in range(3)] == bids
    chosen = made.select([2, 0])
    assert [list(chosen.bundles(claim)) for claim in range(2)] == [bids[2], bids[0]]
    again = ByBundle.joined(classes, [made.select([0]), made.select([1, 2])])
    for name in ("now", "start", "rho", "part_start", "part_class", "part_gpus", "part_machines"):
        assert np.array_equal(getattr(again, name), getattr(made, name))


def test_a_bid_replaces_the_rows_of_its_own_claim_only() -> None:
    classes = four_classes()
    mine, theirs = [Bundle(0.5, (Part(0, 4),))], [Bundle(0.6, (Part(2, 1),))]
    whole = ByBundle.of(classes, [1.0, 2.0], [mine, theirs])
    bid = ByBundle.of(classes, [3.0], [[Bundle(0.1, (Part(3, 2),))]])
    made = whole.replaced(1, bid)
    assert made.now.tolist() == [1.0, 3.0]
    assert list(made.bundles(0)) == mine
    assert list(made.bundles(1)) == list(bid.bundles(0))


def test_scores_derived_from_bids_rank_the_worst_off_claim_first() -> None:
    derived = Valuations(
        claims=Claims(unit=Unit.APP, rows=np.arange(3, dtype=np.int32)),
        forms=(ByBundle.of(four_classes(), [1.0, 3.0, 2.0], [[], [], []]),),
    ).form(Scores)
    assert derived.ranking().tolist() == [1, 2, 0]


def test_the_machines_of_an_offer_are_grouped_into_classes() -> None:
    cluster = Cluster.parse("3x4 V100")
    offer = Offer(
        id=OfferId(1),
        scope=Scope.FREE,
        made_at=Seconds(0.0),
        gpus=np.array([0, 1, 2, 3, 4, 5, 8, 9]),
        candidates=np.empty(0, np.int32),
        free_gpus=8,
        lease=Seconds(60.0),
        capacity=cluster.capacity,
        contention=np.ones(1),
        named=np.empty(0, np.int64),
    )
    assert [offer_classes(cluster, offer).members(k).tolist() for k in range(2)] == [[0], [1, 2]]
    named = dataclasses.replace(offer, named=np.array([2]))
    classes = offer_classes(cluster, named)
    assert [classes.members(k).tolist() for k in range(3)] == [[0], [1], [2]]
    with pytest.raises(InputError, match="group the machines as its offer does"):
        ByBundle.of(offer_classes(cluster, offer), [1.0], [[]]).check(classes=classes)


def test_rows_that_need_a_lost_machine_are_dropped() -> None:
    bids = [[Bundle(0.5, (Part(0, 4, 2),)), Bundle(0.6, (Part(0, 4),)), Bundle(0.7, (Part(1, 1),))]]
    left = ByBundle.of(four_classes(), [1.0], bids).without([2])
    assert [row.parts for row in left.bundles(0)] == [(Part(0, 4),), (Part(1, 1),)]
    assert left.classes.members(0).tolist() == [0]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((Part(4, 1),), "one of the offer's 4 classes"),
        ((Part(-1, 1),), "one of the offer's 4 classes"),
        ((Part(0, 5),), "as many GPUs as a machine offers"),
        ((Part(0, 0),), "as many GPUs as a machine offers"),
        ((Part(0, 4, 3),), "as many machines as its class has"),
        ((Part(0, 4, 0),), "at least one machine"),
        ((Part(0, 3), Part(0, 2), Part(0, 4)), "as many machines as its class has"),
        ((Part(0, 2, 2),), "put what fits one machine"),
        ((Part(0, 3), Part(0, 1)), "put what fits one machine"),
        ((Part(1, 3), Part(1, 4)), "as many machines as its class has"),
        ((), "must ask for something"),
    ],
)
def test_bundles_that_are_not_on_offer_are_refused(parts: tuple[Part, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        table(*parts).check()


@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan"), float("inf")])
def test_rho_must_be_a_positive_number(rho: float) -> None:
    with pytest.raises(InputError, match="rho of a bid must be a positive number, but got"):
        table(Part(0, 1), rho=rho).check()


def test_a_row_may_have_parts_on_several_machines() -> None:
    table(Part(0, 3, 2)).check()
    table(Part(0, 4), Part(0, 2), Part(1, 2), Part(2, 2), Part(3, 1)).check()


def test_bid_tables_are_joined_although_machines_went_down_between_the_bids() -> None:
    """Machine 2 of the first class and all of the second are gone: classes have other numbers now."""
    before = four_classes()
    after = MachineClasses.of(machine=[0, 3, 4], free=[4, 2, 4], gpu_type=[0, 0, 1], rack=[0] * 3)
    rows = [
        Bundle(0.1, (Part(0, 4, 2),)),
        Bundle(0.2, (Part(0, 4),)),
        Bundle(0.3, (Part(1, 4),)),
        Bundle(0.4, (Part(3, 2),)),
    ]
    bid = ByBundle.of(before, [1.0], [rows]).without([1, 2])
    silent = ByBundle.of(after, [2.0], [[Bundle(0.5, (Part(1, 2),))]])
    made = ByBundle.joined(after, [silent, bid])
    made.check(classes=after)
    assert list(made.bundles(0)) == [Bundle(0.5, (Part(1, 2),))]
    assert list(made.bundles(1)) == [Bundle(0.2, (Part(0, 4),)), Bundle(0.4, (Part(2, 2),))]


def test_a_bid_has_a_limited_number_of_rows() -> None:
    long = ByBundle.of(four_classes(), [1.0], [[Bundle(0.5, (Part(0, 1),))] * (MOST_ROWS + 1)])
    with pytest.raises(InputError, match="at most 256 rows, but got 257"):
        long.check(place="bid of app a")


def test_invalid_offsets_are_refused() -> None:
    honest = table(Part(0, 1))
    for start in ([0, 2], [1, 1], [0]):
        with pytest.raises(InputError, match="offsets of a bid"):
            ByBundle(
                classes=honest.classes,
                now=honest.now,
                start=np.array(start, dtype=np.int64),
                rho=honest.rho,
                part_start=honest.part_start,
                part_class=honest.part_class,
                part_gpus=honest.part_gpus,
                part_machines=honest.part_machines,
            ).check()
