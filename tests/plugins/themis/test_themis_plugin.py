"""The plugin's hooks on snapshots made by hand: standings, offers, bids, auctions, leftovers, explanations."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from eunomia import Allocation, ByBundle, Decision, Menus, Offer, Reason, Seconds, Snapshot, Unit, Valuations
from eunomia.contract.bundles import Bundle, Part, offer_classes
from eunomia.contract.decisions import RecordTable
from eunomia.contract.options import make_options
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.testing.builders import World
from eunomia.units import JobId, Version
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.themis.apps import WorkCache
from eunomia_plugins.themis.plugin import Themis, ThemisOptions, usable_rows

LEASE = 600.0


def themis(**options: object) -> Themis:
    return Themis(ThemisOptions(**options))


def forecast(seconds: float, *, jobs: int = 1, most: int = 4, done: float = 0.0) -> Forecast:
    phase = Phase(jobs=(JobForecast(iterations_left=seconds / jobs, seconds_per_iteration=1.0, most=most),) * jobs)
    return Forecast(phases=(phase,), total_gpu_seconds=seconds + done, most=most * jobs)


def four_apps() -> World:
    """Four apps of two jobs on 8 GPUs; apps that arrived later have waited less."""
    world = World("2x4 V100")
    for number in range(4):
        world.app(f"app{number}", arrived=100.0 * number, contention=4.0, forecast=forecast(4000.0, jobs=2))
        for job in range(2):
            world.job(f"app{number}/{job}", gpus=(1, 4), arrived=100.0 * number)
    return world


def round_of(plugin: Themis, world: World, now: float = 500.0, number: int = 1) -> tuple[Snapshot, Menus, Offer, Offer]:
    """Snapshot, menus, the whole offer and the narrowed one."""
    snapshot = world.snapshot(now, round=number)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    offer = world.offer(now, lease=LEASE)
    empty = dataclasses.replace(offer, gpus=np.empty(0, np.int64), free_gpus=0)
    standings = plugin.eunomia_valuation(snapshot, menus, empty)
    return snapshot, menus, offer, plugin.eunomia_offer(snapshot, menus, offer, standings)


def auction(plugin: Themis, world: World, now: float = 500.0, number: int = 1):  # type: ignore[no-untyped-def]
    snapshot, menus, _, offer = round_of(plugin, world, now, number)
    valuations = plugin.eunomia_valuation(snapshot, menus, offer)
    return plugin.eunomia_allocation(snapshot, menus, offer, valuations), offer, valuations


def test_the_offer_goes_to_the_apps_with_the_worst_rho() -> None:
    world = four_apps()
    _, _, whole, offer = round_of(themis(fairness_knob=0.5), world)
    assert whole.apps is None
    assert offer.apps is not None
    assert offer.apps.tolist() == [world.row("app0"), world.row("app1")]


def test_an_app_with_an_ended_lease_is_valued_by_the_gpus_that_it_held() -> None:
    """app0 ran on four GPUs until now; app1 keeps one. Both want more: the offer is app1's, or app0 had it for ever."""
    world = World("2x4 V100")
    for name in ("app0", "app1"):
        world.app(name, contention=2.0, forecast=forecast(4000.0, jobs=2)).job(f"{name}/0", gpus=(1, 4))
        world.job(f"{name}/1", gpus=(1, 4))
    world.holds("app0/0", 0, 1, 2, 3, ends_at=500.0).holds("app1/0", 4, ends_at=900.0)
    snapshot, menus, whole, offer = round_of(themis(fairness_knob=0.8), world)
    assert whole.gpus.tolist() == [0, 1, 2, 3, 5, 6, 7]
    assert offer.apps is not None
    assert offer.apps.tolist() == [world.row("app1")]
    table = themis().eunomia_valuation(snapshot, menus, whole).form(ByBundle)
    assert table.now[world.row("app0")] > table.now[world.row("app1")]  # a bid still starts from nothing


def test_an_app_without_gpus_comes_before_one_with_more_work_left() -> None:
    """app0 has one GPU and all its work left, app1 has no GPU and little left: its ρ is unbounded (§3.3.2)."""
    world = World("2x4 V100")
    world.app("app0", contention=2.0, forecast=forecast(8000.0, jobs=2)).job("app0/0", gpus=(1, 4))
    world.job("app0/1", gpus=(1, 4)).holds("app0/0", 0, ends_at=900.0)
    world.app("app1", contention=2.0, forecast=forecast(100.0, jobs=2, done=7900.0)).job("app1/0", gpus=(1, 4))
    world.job("app1/1", gpus=(1, 4))
    snapshot, menus, whole, offer = round_of(themis(fairness_knob=0.8), world)
    table = themis().eunomia_valuation(snapshot, menus, whole).form(ByBundle)
    assert table.now[world.row("app0")] > table.now[world.row("app1")]
    assert offer.apps is not None
    assert offer.apps.tolist() == [world.row("app1")]


def test_apps_that_cannot_use_the_offer_are_not_counted() -> None:
    """app0 holds all that it can use, app1 asks for another type: of two left, f = 0.5 shows the offer to one."""
    world = World("2x4 V100, 1x2 P100")
    for name, kind in (("app0", None), ("app1", "P100"), ("app2", None), ("app3", None)):
        world.app(name, forecast=forecast(400.0), contention=4.0)
        world.job(f"{name}/0", gpus=(1, 2), gpu_type=kind)
    world.holds("app0/0", 0, 1, ends_at=900.0).down(8, 9)
    _, _, _, offer = round_of(themis(fairness_knob=0.5), world, now=10.0)
    assert offer.apps is not None
    assert offer.apps.size == 1
    assert offer.apps[0] in (world.row("app2"), world.row("app3"))


def test_a_round_grants_and_pins_all_gpus() -> None:
    allocation, offer, _ = auction(themis(fairness_knob=0.25), four_apps())
    assert allocation.claims.unit is Unit.APP
    amount = allocation.amount
    assert amount.pins is not None
    assert int(amount.gpus.sum()) == 8
    by_claim = np.bincount(amount.pins.claim, weights=amount.pins.gpus, minlength=4)
    assert by_claim.tolist() == amount.gpus.tolist()
    on_machine = np.bincount(amount.pins.machine, weights=amount.pins.gpus, minlength=2)
    assert on_machine.tolist() == [4, 4]
    assert allocation.order.tolist() == np.flatnonzero(amount.gpus).tolist()
    assert offer.apps is not None
    assert offer.apps.size == 3


def test_the_same_round_gives_the_same_draws_and_another_round_new_ones() -> None:
    grants = [auction(themis(fairness_knob=0.25), four_apps())[0].amount.gpus.tolist() for _ in range(2)]
    assert grants[0] == grants[1]
    others = {tuple(auction(themis(fairness_knob=0.25), four_apps(), number=n)[0].amount.gpus) for n in range(12)}
    assert len(others) > 1


def test_a_warm_and_a_cold_cache_give_the_same_bids() -> None:
    world, warm = four_apps(), themis(fairness_knob=0.0)
    snapshot, menus, _, offer = round_of(warm, world)
    again = warm.eunomia_valuation(snapshot, menus, offer).form(ByBundle)
    cold = themis(fairness_knob=0.0).eunomia_valuation(snapshot, menus, offer).form(ByBundle)
    assert again.rho.tolist() == cold.rho.tolist()
    assert again.now.tolist() == cold.now.tolist()


@pytest.mark.parametrize("held", [False, True])
def test_an_agent_values_an_offer_like_the_arbiter_does_for_the_app(held: bool) -> None:
    """SEPARABLE: the agent of an app, on its own snapshot, finds the arbiter's rows for it."""
    world, plugin = four_apps(), themis(fairness_knob=0.0)
    if held:
        world.holds("app1/0", 0, ends_at=900.0).holds("app2/0", 5, 6, ends_at=900.0)
    snapshot, menus, _, offer = round_of(plugin, world)
    whole = plugin.eunomia_valuation(snapshot, menus, offer)
    for claim, row in enumerate(whole.claims.rows.tolist()):
        own = snapshot.only(row)
        mine = dataclasses.replace(offer, apps=np.zeros(1, np.int32), contention=offer.contention[[row]])
        agent = themis(fairness_knob=0.0)
        table = agent.eunomia_valuation(own, Range(RangeOptions()).eunomia_elasticity(own), mine).form(ByBundle)
        assert list(table.bundles(0)) == list(whole.form(ByBundle).bundles(claim))
        assert table.now[0] == whole.form(ByBundle).now[claim]
        assert table.classes.same(whole.form(ByBundle).classes)


def test_gpus_left_by_a_winner_go_to_apps_outside_of_the_auction_first() -> None:
    """One app bids for all (f = 1) and pays nothing; what it cannot use goes to the others."""
    world = four_apps()
    allocation, offer, valuations = auction(themis(fairness_knob=1.0), world)
    assert offer.apps is not None
    assert offer.apps.tolist() == [world.row("app0")]
    record = allocation.record.columns()
    assert record["app"][0] == "app0"
    assert record["kept"][0] == 1.0
    assert record["gpus_won"][0] == 8
    assert sum(record["gpus_left_over"]) == 0
    assert valuations.claims.rows.tolist() == [world.row("app0")]
    waiting = dict(zip(allocation.verdicts.rows.tolist(), allocation.verdicts.reasons.tolist(), strict=True))
    assert waiting == {world.row(f"app{n}"): int(Reason.NOT_OFFERED) for n in (1, 2, 3)}


def test_kept_and_leftover_gpus_add_up_to_the_grants_over_many_rounds() -> None:
    """Over 40 seeds: kept and leftover GPUs add up to the grants, and c_i of the bundle is kept on average."""
    expected = kept = 0.0
    for number in range(40):
        allocation, offer, _ = auction(themis(fairness_knob=0.25), four_apps(), number=number)
        record = allocation.record.columns()
        total = sum(record["gpus_kept"]) + sum(record["gpus_left_over"])
        assert total == allocation.amount.gpus.sum() == offer.gpus.size
        expected += sum(c * g for c, g in zip(record["kept"], record["gpus_won"], strict=True) if c is not None)
        kept += sum(record["gpus_kept"])
    assert expected < 40 * 8
    assert kept == pytest.approx(expected, rel=0.15)


def test_gangs_are_kept_whole_or_not_at_all() -> None:
    """Three jobs of exactly 4 GPUs on one machine of 4: c_i is the chance to keep the machine."""
    world = World("1x4 V100")
    for number in range(3):
        world.app(f"app{number}", arrived=10.0 * number, contention=3.0, forecast=forecast(4000.0))
        world.job(f"app{number}/0", gpus=4, arrived=10.0 * number)
    sizes, held_back = set(), 0
    for number in range(30):
        allocation, _, _ = auction(themis(fairness_knob=0.0), world, now=100.0, number=number)
        sizes |= set(allocation.amount.gpus.tolist())
        held_back += int(Reason.HELD_BACK) in allocation.verdicts.reasons.tolist()
        assert int(allocation.amount.gpus.sum()) == 4  # GPUs that a payment frees go to apps that can use them
    assert sizes == {0, 4}
    assert held_back > 0


def test_an_app_bids_with_the_gpus_that_it_holds_and_stays_where_it_runs() -> None:
    """Its lease of GPUs 4 and 5 is over: it wins the machine on which it runs, not the other."""
    world = World("2x4 V100")
    world.app("a", forecast=forecast(400.0, most=2), contention=1.0).job("a/0", gpus=(1, 2))
    world.holds("a/0", 4, 5, ends_at=50.0)
    allocation, _, _ = auction(themis(), world, now=50.0)
    assert allocation.amount.pins.machine.tolist() == [1]
    assert allocation.amount.gpus.tolist() == [2]


def test_gpus_with_an_unexpired_lease_count_as_held() -> None:
    world = World("2x4 V100")
    world.app("a", forecast=forecast(400.0, most=4), contention=1.0).job("a/0", gpus=(1, 4))
    world.holds("a/0", 0, 1, ends_at=900.0)
    snapshot, menus, _, offer = round_of(themis(), world, now=10.0)
    view = WorkCache((1.0, 1.0, 1.1, 1.3)).views(snapshot, menus, offer).view(0)
    assert view.context.held == {0: 2}
    assert view.context.waited == 0.0
    table = themis().eunomia_valuation(snapshot, menus, offer).form(ByBundle)
    assert table.now[0] == pytest.approx((10 + 200) / 100)
    assert set(table.sizes.tolist()) == {1, 2}
    allocation, _, _ = auction(themis(), world, now=10.0)
    assert allocation.amount.gpus.tolist() == [2]
    assert allocation.amount.pins.machine.tolist() == [0]


def test_an_app_that_reports_no_forecast_is_valued_from_its_jobs() -> None:
    world = World("1x4 V100").app("a", contention=2.0)
    world.job("a/0", gpus=(1, 4), iterations=100.0, seconds_per_iteration=4.0)
    snapshot, menus, _, offer = round_of(themis(), world, now=0.0)
    table = themis().eunomia_valuation(snapshot, menus, offer).form(ByBundle)
    best = dict(zip(table.sizes.tolist(), table.rho.tolist(), strict=True))
    assert best[4] == pytest.approx(100.0 / 200.0)
    unknown = World("1x4 V100").app("b").job("b/0", gpus=(1, 4))
    snapshot, menus, _, offer = round_of(themis(), unknown, now=0.0)
    table = themis().eunomia_valuation(snapshot, menus, offer).form(ByBundle)
    table.check()
    assert table.rho.size > 0


def test_bids_off_the_menu_of_an_app_and_of_another_type_are_dropped() -> None:
    world = World("1x4 P100, 1x4 V100").app("a", forecast=forecast(400.0, most=2))
    world.job("a/0", gpus=2, gpu_type="V100")
    snapshot, menus, _, offer = round_of(themis(), world, now=0.0)
    classes = offer_classes(snapshot.cluster, offer)
    rows = [Bundle(0.1, (Part(kind, gpus),)) for kind in range(2) for gpus in (1, 2, 4)]
    context = WorkCache((1.0, 1.0, 1.1, 1.3)).views(snapshot, menus, offer).view(0).context
    kept = usable_rows(ByBundle.of(classes, [1.0], [rows]), [context])
    v100 = snapshot.cluster.gpu_types.index("V100")
    kind = int(np.flatnonzero(classes.gpu_type == v100)[0])
    assert list(kept.bundles(0)) == [Bundle(0.1, (Part(kind, 2),))]


def test_reference_and_fast_path_give_the_same_auction() -> None:
    fast = auction(themis(fairness_knob=0.25), four_apps())[0]
    slow = auction(themis(fairness_knob=0.25, solver="reference"), four_apps())[0]
    one, other = fast.record.columns(), slow.record.columns()
    assert sum(np.log(g) for g in one["gain"] if g) == pytest.approx(sum(np.log(g) for g in other["gain"] if g))
    assert set(other["method"]) == {"reference"}


def test_an_auction_without_known_work_or_rates_has_finite_values() -> None:
    world = World("1x2 V100").app("a", forecast=Forecast(phases=(), total_gpu_seconds=0.0, most=1), contention=np.nan)
    world.job("a/0", gpus=1)
    allocation, _, valuations = auction(themis(), world, now=0.0)
    assert np.isfinite(valuations.form(ByBundle).now).all()
    assert allocation.amount.gpus.tolist() == [1]  # done by its own account, yet it waits: left over to it


def decided(allocation: Allocation) -> Decision:
    """The decision of round 2 with the auction's record."""
    assert allocation.record is not None
    table = RecordTable(plugin="themis", table=allocation.record.table, columns=dict(allocation.record.columns()))
    return Decision(now=Seconds(100.0), round=2, version=Version(1), records=(table,))


def test_an_auction_without_bidders_is_explained_without_an_empty_list() -> None:
    plugin, world = themis(), World("1x2 V100")
    world.app("wide", forecast=forecast(400.0, most=4)).job("wide/0", gpus=4)
    allocation, _, valuations = auction(plugin, world, now=100.0, number=2)
    assert valuations.claims.rows.size == 0
    said = plugin.eunomia_explain(world.snapshot(101.0), decided(allocation), JobId("wide/0"))
    assert said is not None
    assert said.text == "The offer went to no app: wide and all others could use none of the free GPUs."


def test_the_explanation_of_an_auction_names_why_a_job_waits() -> None:
    plugin, world = themis(fairness_knob=0.0), World("1x2 V100")
    for number, seconds in enumerate((400.0, 800.0, 4000.0)):
        world.app(f"app{number}", contention=3.0, forecast=forecast(seconds, most=2))
        world.job(f"app{number}/0", gpus=2)
    allocation, _, _ = auction(plugin, world, now=100.0, number=2)
    decision = decided(allocation)
    snapshot = world.snapshot(101.0)
    texts = [plugin.eunomia_explain(snapshot, decision, JobId(f"app{number}/0")) for number in range(3)]
    assert all(text is not None for text in texts)
    lost = texts[2]
    assert lost is not None
    assert lost.text.startswith("2 free slots went to the apps that gain most together: app0 ρ ")
    assert set(lost.numbers) >= {"rho", "rho_with_2"}
    assert plugin.eunomia_explain(snapshot, dataclasses.replace(decision, records=()), JobId("app0/0")) is None
    other = plugin.eunomia_explain(snapshot, decision, JobId("stranger/0"))
    assert other is not None
    assert "with the worst ρ" in other.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fairness_knob": 1.4}, "fairness_knob must be between 0 and 1, but got 1.4"),
        ({"slowdown": {"rack": 0.5}}, "slowdown.rack must be"),
        ({"solver": "gurobi"}, 'solver must be "fast" or "reference", but got "gurobi"'),
        ({"fairnes_knob": 0.5}, 'did you mean "fairness_knob"'),
    ],
)
def test_bad_options_are_refused_with_rule_value_and_place(given: dict[str, object], said: str) -> None:
    with pytest.raises(Exception, match=said) as caught:
        make_options(ThemisOptions, given, place=lambda path: f"mixed.toml, [plugins.themis].{'.'.join(path)}")
    assert "mixed.toml, [plugins.themis]" in str(caught.value)


def test_an_auction_without_apps_grants_nothing() -> None:
    world = World("1x2 V100")
    allocation, _, valuations = auction(themis(), world, now=0.0)
    assert isinstance(valuations, Valuations)
    assert allocation.amount.gpus.size == 0


def test_loading_the_plugin_loads_no_solver() -> None:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; import eunomia_plugins.themis.plugin; "
        "sys.exit(str({'highspy', 'scipy', 'cvxpy', 'gurobipy', 'clarabel', 'torch'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
