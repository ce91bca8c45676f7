"""The auction: by hand, against brute force, against the specification; Figure 5; payments; packing."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from themis_instances import brute_force, random_bids

from eunomia.contract.bundles import Bundle, ByBundle, MachineClasses, Part
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.units import Ints
from eunomia_plugins.themis.auction import Method, gains, run_auction, useful_rows
from eunomia_plugins.themis.counting import count
from eunomia_plugins.themis.packing import patterns
from eunomia_plugins.themis.plugin import bidders
from eunomia_plugins.themis.reference import Specification, run_reference
from eunomia_plugins.themis.rho import BidContext, bid, rho_now
from eunomia_plugins.themis.winnings import pack
from eunomia_plugins.themis.work import RemainingWork
from eunomia_solvers import Limits
from strength import examples


def machines(*free: int) -> MachineClasses:
    return MachineClasses.of(machine=range(len(free)), free=free, gpu_type=[0] * len(free), rack=[0] * len(free))


def vgg16(classes: MachineClasses, *, sensitive: bool) -> tuple[list[Bundle], float]:
    """One job of 4 tasks; Table 1: VGG16 loses 103.6 / 80.4 over two servers, Inception-v3 nothing to speak of."""
    far = 103.6 / 80.4 if sensitive else 243 / 242
    job = JobForecast(iterations_left=1000, seconds_per_iteration=1.0, least=4, most=4, slowdown=(1.0, 1.0, far, far))
    work = RemainingWork(Forecast(phases=(Phase(jobs=(job,)),), total_gpu_seconds=1000.0, most=4))
    place = BidContext(
        elapsed=0.0, waited=0.0, ideal=500.0, lease=600.0, usable=np.array([4]), gpu_type=-1, held={}, rack_of={}
    )
    return bid(work, place, classes), rho_now(work, place)


def gpus_won(table: ByBundle, row: Ints) -> list[int]:
    won = pack(table, row)
    return [sum(won.get(claim, {}).values()) for claim in range(len(table))]


def parts_won(table: ByBundle, row: int) -> tuple[int, ...]:
    return tuple(sorted(int(table.classes.free[part.machine_class]) for part in table.parts(row)))


@pytest.mark.parametrize("solve", [run_auction, run_reference])
def test_in_figure_5_instance_1_each_app_gets_a_whole_server(solve: object) -> None:
    classes = machines(4, 4)
    (first, now), (second, _) = vgg16(classes, sensitive=True), vgg16(classes, sensitive=True)
    table = ByBundle.of(classes, [now, now], [first, second])
    outcome = solve(table)  # type: ignore[operator]
    assert all(table.parts(int(row)) == (Part(0, 4, 1),) for row in outcome.row)
    assert outcome.kept.tolist() == [1.0, 1.0]
    assert sorted(tuple(machines.items()) for machines in pack(table, outcome.row).values()) == [((0, 4),), ((1, 4),)]


@pytest.mark.parametrize("solve", [run_auction, run_reference])
@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_in_figure_5_instance_2_the_sensitive_app_gets_the_machine_of_four(
    solve: object, order: tuple[bool, bool]
) -> None:
    classes = machines(4, 2, 2)
    bids = [vgg16(classes, sensitive=sensitive) for sensitive in order]
    table = ByBundle.of(classes, [now for _, now in bids], [rows for rows, _ in bids])
    outcome = solve(table)  # type: ignore[operator]
    won = {sensitive: parts_won(table, int(row)) for sensitive, row in zip(order, outcome.row, strict=True)}
    assert won == {True: (4,), False: (2,)}
    assert table.parts(int(outcome.row[order.index(False)])) == (Part(1, 2, 2),)


@pytest.mark.parametrize("solve", [run_auction, run_reference])
def test_payments_equal_those_computed_by_hand(solve: object) -> None:
    """One slot, gains 2, 3 and 1.5: the second wins and keeps 1/2, for the first could have doubled without it."""
    one = [Bundle(1.0, (Part(0, 1),))]
    outcome = solve(ByBundle.of(machines(1), [2.0, 3.0, 1.5], [one, one, one]))  # type: ignore[operator]
    assert outcome.row.tolist() == [-1, 1, -1]
    assert outcome.kept == pytest.approx([1.0, 0.5, 1.0])
    assert outcome.objective == pytest.approx(math.log(3.0))


def test_two_winners_of_the_demo_pay_the_gain_of_the_loser() -> None:
    """Two slots, three bidders: the winners' payment is the loser's gain, 1 - 0.95 / 1.09 = 0.13."""
    now, then = [1.20, 1.31, 1.09], [1.01, 1.12, 0.95]
    table = ByBundle.of(machines(2), now, [[Bundle(rho, (Part(0, 1),))] for rho in then])
    outcome = run_auction(table)
    assert outcome.row.tolist() == [0, 1, -1]
    assert (1 - outcome.kept) == pytest.approx([0.128, 0.128, 0.0], abs=1e-3)


def test_no_app_pays_if_all_bids_fit() -> None:
    table = ByBundle.of(machines(4), [2.0, 3.0], [[Bundle(1.0, (Part(0, 2),))]] * 2)
    assert run_auction(table).kept.tolist() == [1.0, 1.0]


def test_rows_of_a_bid_without_a_gain_never_win() -> None:
    table = ByBundle.of(machines(4), [1.0], [[Bundle(1.0, (Part(0, 2),)), Bundle(1.5, (Part(0, 4),))]])
    assert run_auction(table).row.tolist() == [-1]


@pytest.mark.parametrize("bids", [[], [[]], [[], [Bundle(0.5, (Part(0, 1),))]]])
def test_a_single_bidder_wins_without_a_payment(bids: list[list[Bundle]]) -> None:
    table = ByBundle.of(machines(1), [1.0] * len(bids), bids)
    for outcome in (run_auction(table), run_reference(table), run_auction(table, integer=True)):
        assert outcome.row.tolist() == [0 if rows else -1 for rows in bids]
        assert (outcome.kept == 1.0).all()


@pytest.mark.parametrize("seed", range(examples(30)))
def test_the_fast_path_equals_specification_and_brute_force(seed: int) -> None:
    """Contended, odd gangs and partly taken machines; ties may differ, so payments are of the fast path's rows."""
    table = random_bids(np.random.default_rng(seed), odd=seed % 3 != 0)
    outcome, specification = run_auction(table), Specification(table)
    assert outcome.gap == 0.0
    _, objective = specification.best()
    assert outcome.objective == pytest.approx(objective, abs=1e-6)
    assert outcome.kept == pytest.approx(specification.fractions(outcome.row, outcome.objective), abs=1e-6)
    assert ((outcome.kept > 0.0) & (outcome.kept <= 1.0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 200))
def test_the_fast_path_equals_the_specification_on_more_instances(seed: int) -> None:
    test_the_fast_path_equals_specification_and_brute_force(seed)


@pytest.mark.parametrize("seed", range(examples(15)))
def test_all_three_methods_equal_brute_force_on_tiny_instances(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    free = rng.choice([1, 2, 3, 4, 5], size=int(rng.integers(1, 4)))
    classes = machines(*free.tolist())
    bids = []
    for _ in range(int(rng.integers(2, 5))):
        rows = []
        for kind in range(len(classes)):
            gpus = int(rng.integers(1, classes.free[kind] + 1))
            rows.append(Bundle(float(rng.uniform(0.1, 1.0)), (Part(kind, gpus),)))
        bids.append(rows)
    table = ByBundle.of(classes, np.ones(len(bids)), bids)
    table.check()
    best = brute_force(table)
    for outcome in (run_auction(table), run_auction(table, integer=True), run_reference(table)):
        assert outcome.objective == pytest.approx(best, abs=1e-9)
        for claim in np.flatnonzero(outcome.row >= 0).tolist():
            others = outcome.objective - gains(table)[outcome.row[claim]]
            assert outcome.kept[claim] == pytest.approx(math.exp(others - brute_force(table, excluded=claim)))


def test_odd_gangs_on_equal_machines_are_solved_exactly_by_counts() -> None:
    """Parts of 2 and 3 on two machines of 7: GPUs alone would let 3 + 3 + 2 + 2 + 2 + 2 fit."""
    classes = machines(7, 7)
    bids = [[Bundle(0.5, (Part(0, 3),))]] * 2 + [[Bundle(0.5, (Part(0, 2),))]] * 4
    table = ByBundle.of(classes, [1.0] * 6, bids)
    outcome = run_auction(table)
    assert outcome.method is Method.COUNTS
    assert outcome.objective == pytest.approx(brute_force(table))
    assert gpus_won(table, outcome.row) == table.sizes[outcome.row].tolist()


@pytest.mark.parametrize("apps", [20, 60])
def test_the_method_by_counts_finds_the_same_auction_as_the_integer_programme(apps: int) -> None:
    """Six machines of 8, gangs of 2, 3 and 4, ten times what there is: seconds as integers, hundredths as counts."""
    rng = np.random.default_rng(apps)
    bids = [[Bundle(float(rng.uniform(0.3, 0.9)), (Part(0, int(rng.integers(2, 5))),))] for _ in range(apps)]
    table = ByBundle.of(machines(*[8] * 6), rng.uniform(1.0, 2.0, apps), bids)
    outcome, integer = run_auction(table), run_auction(table, integer=True)
    assert (outcome.method, integer.method) == (Method.COUNTS, Method.INTEGER)
    assert outcome.row.tolist() == integer.row.tolist()
    assert outcome.kept == pytest.approx(integer.kept, abs=1e-9)
    assert gpus_won(table, outcome.row) == np.where(outcome.row >= 0, table.sizes[outcome.row], 0).tolist()


def test_a_stopped_integer_programme_states_its_gap() -> None:
    table = random_bids(np.random.default_rng(5))
    stopped = run_auction(table, integer=True, limits=Limits(gap=0.5))
    exact = run_auction(table, integer=True)
    assert stopped.objective <= exact.objective + 1e-9
    assert exact.objective <= stopped.objective + stopped.gap + 1e-9
    assert exact.gap == 0.0


def test_an_auction_with_too_many_counts_is_solved_by_the_integer_programme() -> None:
    many = [4] * 40
    classes = MachineClasses.of(machine=range(40), free=many, gpu_type=[0] * 40, rack=range(40))
    bids = [[Bundle(0.5, (Part(kind, 1),)) for kind in range(40)] for _ in range(5)]
    outcome = run_auction(ByBundle.of(classes, [1.0] * 5, bids))
    assert outcome.method is Method.INTEGER
    assert (outcome.row >= 0).all()


def test_recomputed_tables_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):
        table = random_bids(np.random.default_rng(seed), odd=False)
        whole = run_auction(table)
        with monkeypatch.context() as patch:
            patch.setattr("eunomia_plugins.themis.auction.MOST_KEPT", 0)
            pieces = run_auction(table)
        assert pieces.row.tolist() == whole.row.tolist()
        assert pieces.kept.tolist() == whole.kept.tolist()


@settings(max_examples=examples(150), deadline=None)
@given(
    free=st.integers(1, 9),
    many=st.integers(1, 3),
    wanted=st.lists(st.integers(1, 9), min_size=1, max_size=7),
)
def test_counts_decide_exactly_which_parts_can_be_packed(free: int, many: int, wanted: list[int]) -> None:
    """For one class: the counts allow all parts together if and only if some packing has them."""
    wanted = [min(size, free) for size in wanted]
    classes = machines(*[free] * many)
    table = ByBundle.of(classes, [1.0] * len(wanted), [[Bundle(0.5, (Part(0, size),))] for size in wanted])
    fits = _packs(sorted(wanted, reverse=True), [free] * many)
    counts = count(table, useful_rows(table, gains(table)))
    allowed = bool((counts.use.sum(axis=0) <= counts.capacity).all())
    if counts.uncounted.any():
        assert allowed or not fits
    else:
        assert allowed == fits
    counts = count(table, useful_rows(table, gains(table)), by_size=True)
    total = counts.use.sum(axis=0)
    allowed = bool((total <= counts.capacity).all())
    for one in counts.fits:
        allowed = allowed and bool(one.packable[tuple(total[one.first :][: one.packable.ndim])])
    assert counts.uncounted.any() or allowed == fits


def _packs(sizes: list[int], room: list[int]) -> bool:
    if not sizes:
        return True
    for at in sorted(set(range(len(room))), key=lambda one: room[one]):
        if room[at] >= sizes[0]:
            room[at] -= sizes[0]
            if _packs(sizes[1:], room):
                return True
            room[at] += sizes[0]
    return False


def test_patterns_leave_no_room_for_another_part() -> None:
    ways = patterns(np.array([2, 3]), 7)
    assert sorted(map(tuple, ways.tolist())) == [(0, 2), (2, 1), (3, 0)]
    assert len(patterns(np.arange(1, 9), 8)) == 22


@pytest.mark.parametrize(
    ("f", "apps", "many"),
    [
        (0.8, 4, 1),
        (0.8, 5, 1),
        (0.8, 6, 2),
        (0.7, 10, 3),
        (0.25, 4, 3),
        (0.0, 7, 7),
        (1.0, 7, 1),
        (0.8, 0, 1),
        (0.9, 10, 1),
    ],
)
def test_the_number_of_bidders_is_computed_from_f_as_a_decimal(f: float, apps: int, many: int) -> None:
    """In binary fractions 1 - 0.7 is above 0.3, and 10 apps would give 4."""
    assert bidders(apps, f) == many
