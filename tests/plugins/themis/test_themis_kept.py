"""What is kept between rounds, and computed as columns, equals what is read of one app after another."""

from collections.abc import Iterator

import numpy as np
import pytest

from eunomia import Cluster, Profile
from eunomia.units import Bools, Ints, Reals, Rows
from eunomia_plugins.themis.apps import AppView, AppViews, WorkCache
from eunomia_plugins.themis.last_auction import LastAuctions
from eunomia_plugins.themis.rho import rho_now
from eunomia_testbed.generators.themis import ThemisOptions, generate_themis1
from eunomia_testbed.simulator import SimulationOptions, simulate_one
from eunomia_testbed.workload import Workload

HOURS = 3600.0


def views_again(views: AppViews) -> AppViews:
    """The same apps, read from the snapshot alone."""
    apps = views.apps
    cache = WorkCache((1.0, 1.0, 1.1, 1.3), standing_slowdown=apps.standing_slowdown)
    return cache.views(apps.snapshot, apps.menus, apps.offer, views.gpus)


def read_again(views: AppViews, rows: Rows) -> Iterator[AppView]:
    """Views of apps that are read from the snapshot alone."""
    return map(views_again(views).view, rows.tolist())


RHO_NOW, ABLE, BY_AUCTION = AppViews.rho_now, AppViews.able, LastAuctions.rho


class Checked:
    """Compares each answer for many apps with that of one app after another, and counts the apps."""

    def __init__(self) -> None:
        self.apps = self.by_auction = self.able = 0

    def check_rho(self, views: AppViews, rows: Rows, *, standing: bool = False) -> Reals:
        found = RHO_NOW(views, rows, standing=standing)
        apps = [(view.facts, view.context) for view in read_again(views, rows)]
        assert found.tolist() == [rho_now(facts.standing if standing else facts.work, of) for facts, of in apps]
        self.apps += rows.size
        return found

    def check_by_auction(self, last: LastAuctions, views: AppViews, rows: Rows, before: AppViews) -> Reals:
        found = BY_AUCTION(last, views, rows, before)
        pairs = zip(read_again(views, rows), read_again(before, rows), strict=True)
        for (view, then), rho in zip(pairs, found.tolist(), strict=True):
            expected, context = last.apps.get(view.name), view.context
            if expected is None:
                assert rho == rho_now(then.facts.standing, then.context)
            else:
                assert rho == expected.rho(views.apps.snapshot.now, context.waited, context.lease)
                self.by_auction += 1
        return found

    def check_able(self, views: AppViews, rows: Rows, offered: Ints) -> Bools:
        found = ABLE(views, rows, offered)
        fresh = views_again(views)
        assert found.tolist() == [fresh.can_use(row, offered) for row in rows.tolist()]
        self.able += int(found.sum())
        return found


def crowd(apps: int) -> Workload:
    """Apps of one job that come within minutes; some jobs need several GPUs at once."""
    luck = np.random.default_rng(3)
    return Workload.single_jobs(
        "crowd",
        ids=[f"a{number}" for number in range(apps)],
        arrival_seconds=np.sort(luck.uniform(0.0, 900.0, apps)),
        gpus=luck.choice([1, 2, 4, 8], apps),
        iterations=10 ** luck.uniform(2.5, 4.0, apps),
        seconds_per_iteration=np.ones(apps),
    )


def searches() -> Workload:
    return generate_themis1(ThemisOptions.model_validate({"apps": 14, "days": 0.5}), 2)


@pytest.mark.parametrize(
    ("workload", "agents", "hours", "settings"),
    [
        (crowd(60), False, 1.0, {}),
        (crowd(60), True, 1.0, {"rounds.lease": "5m"}),
        (searches(), False, 12.0, {"plugins.themis.fairness_knob": 0.5}),
        (searches(), True, 12.0, {"plugins.themis.standing_slowdown": True}),
    ],
    ids=["jobs", "jobs that bid", "searches", "searches that bid"],
)
def test_app_data_read_as_columns_equal_those_read_one_by_one(
    workload: Workload, agents: bool, hours: float, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = Checked()
    monkeypatch.setattr(AppViews, "rho_now", lambda *given, **more: checked.check_rho(*given, **more))
    monkeypatch.setattr(AppViews, "able", lambda *given: checked.check_able(*given))
    monkeypatch.setattr(LastAuctions, "rho", lambda *given: checked.check_by_auction(*given))
    profile = Profile.load("themis", settings=settings)
    options = SimulationOptions(agents=agents, until=hours * HOURS)
    simulate_one(workload, Cluster.parse("2x4 V100, 1x8 V100"), profile, options=options)
    assert min(checked.apps, checked.by_auction, checked.able) > 100
