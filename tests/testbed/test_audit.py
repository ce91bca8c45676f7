"""The auditor: planted policies are judged rightly, known lies and losses are found, counterexamples replay."""

import json
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from eunomia import Allocation, Claims, Contract, DeviceShares, Feature, Offer, Snapshot, Stage, Unit, hookimpl
from eunomia.cli import run
from eunomia.contract.contracts import Contracts, Promise
from eunomia.errors import InputError, InputErrors
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry
from eunomia.testing.conformance import PolicyConformance
from eunomia.units import Reals
from eunomia_testbed.audit.auditing import Audit, audit, judged_again
from eunomia_testbed.audit.auditing_rounds import judged_over_rounds, lied_over_rounds
from eunomia_testbed.audit.files import Stored, read, write
from eunomia_testbed.audit.full import full_audit
from eunomia_testbed.audit.generators import GENERATORS, instances
from eunomia_testbed.audit.instances import AuditInstance
from eunomia_testbed.audit.lies import Lie
from eunomia_testbed.audit.page import page
from eunomia_testbed.audit.policy import SMALLEST, AuditedPolicy
from eunomia_testbed.audit.programmes import dominating, optimum
from eunomia_testbed.audit.properties import JUDGES
from eunomia_testbed.audit.reasons import reason
from eunomia_testbed.audit.rounds import over_time, received, round_seconds
from eunomia_testbed.audit.table import summary
from eunomia_testbed.audit.violations import Property, Violation

SEED = 0
GOLDEN = [
    [(1, 2), (1, 3), (1, 4)],
    [(1, 2), (1, 5)],
    [(1, 2), (1, 4)],
    [(1, 5, 6), (1, 2, 3), (1, 6, 7)],
    [(1, 4, 5), (1, 2, 3)],
]
"""Examples that the generators must not give away."""


class _Planted:
    """Shares of users that a subclass gives, rounded as OEF's are."""

    api = 1
    contracts: ClassVar[Contracts] = {Stage.ALLOCATION: Contract(gives=frozenset({Feature.DEVICE_SHARES}))}

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, offer: Offer) -> Allocation:
        rows = np.unique(snapshot.apps.user[snapshot.jobs.app[snapshot.active]]).astype(np.int32)
        weight = snapshot.users.weight[rows]
        gpus = self.shares(weight / weight.sum())[:, None] * offer.capacity.astype(float)
        return Allocation(
            claims=Claims(unit=Unit.USER, rows=rows),
            amount=DeviceShares(gpus=gpus, since=snapshot.now),
            order=np.arange(rows.size, dtype=np.int32),
        )

    def shares(self, part: Reals) -> Reals:
        raise NotImplementedError


class Honest(_Planted):
    name = "planted_equal"

    def shares(self, part: Reals) -> Reals:
        return part


class Thief(_Planted):
    name = "planted_thief"

    def shares(self, part: Reals) -> Reals:
        taken: Reals = part * np.where(np.arange(part.size) == part.size - 1, 0.5, 1.0)
        taken[0] += 1.0 - taken.sum()
        return taken


class Waster(_Planted):
    name = "planted_waster"

    def shares(self, part: Reals) -> Reals:
        return 0.75 * part


def audited(name: str, count: int, *kinds: Property, settings: tuple[str, ...] = ()) -> Audit:
    policy = AuditedPolicy(Profile.load(name, settings=settings), seed=SEED)
    return audit(policy, "mixed", count=count, seconds=60.0, kinds=kinds or tuple(Property))


def planted(kind: type[_Planted]) -> Audit:
    profile = Profile.load(
        kind.name, settings={"stages.refiners": ["rounding"]}, registry=default_registry().adding(kind)
    )
    return audit(AuditedPolicy(profile, seed=SEED), "ordered", count=5, seconds=60.0)


def violated(made: Audit) -> set[Property]:
    return {kind for kind, tally in made.tallies.items() if tally.violated}


# --- planted policies ---------------------------------------------------------------------------------------------


def test_an_equal_split_is_fair_and_ignores_speeds() -> None:
    made = planted(Honest)
    assert violated(made) == {Property.PARETO_EFFICIENT, Property.EFFICIENT}
    assert "rate" in reason(made, Property.PARETO_EFFICIENT)


def test_a_policy_that_takes_gpus_from_others_is_caught() -> None:
    made = planted(Thief)
    lacks = made.tallies[Property.SHARING_INCENTIVE]
    assert lacks.share == 1.0
    assert lacks.largest is not None
    assert lacks.largest.size == pytest.approx(0.5)
    assert made.tallies[Property.ENVY_FREE].share == 1.0
    assert Property.WORK_CONSERVING not in violated(made)


def test_a_policy_that_wastes_gpus_is_caught() -> None:
    made = planted(Waster)
    idle = made.tallies[Property.WORK_CONSERVING]
    assert idle.share == 1.0
    assert idle.largest is not None
    assert idle.largest.size == pytest.approx(0.25)
    assert made.tallies[Property.SHARING_INCENTIVE].share == 1.0
    assert Property.ENVY_FREE not in violated(made)


class PromisingThief(Thief):
    name = "promising_thief"
    contracts: ClassVar[Contracts] = {
        Stage.ALLOCATION: Contract(
            gives=frozenset({Feature.DEVICE_SHARES}), promises=frozenset({Promise.SHARING_INCENTIVE})
        )
    }


def test_the_conformance_suite_finds_a_broken_promise_to_users() -> None:
    suite = type("Suite", (PolicyConformance,), {"plugin": PromisingThief, "profile": {"refiners": ["rounding"]}})()
    with pytest.raises(AssertionError, match="promising_thief: sharing incentive must hold where it is promised, but"):
        suite.test_promises_to_users_hold()


# --- what is known of policies --------------------------------------------------------------------------------------


def test_generators_do_not_produce_the_known_examples() -> None:
    known = {tuple(sorted(tuple(float(item) for item in row) for row in table)) for table in GOLDEN}
    drawn = instances("mixed", SEED, whole=False)
    for _ in range(300):
        assert tuple(sorted(next(drawn).speedup)) not in known


def found_in(made: Audit, kind: Property) -> Violation:
    smallest = made.tallies[kind].smallest
    assert smallest is not None
    assert smallest.instance.users <= 3
    return smallest


def by_specification(name: str, found: Violation, settings: tuple[str, ...] = ()) -> None:
    """The programme as the paper states it, in cvxpy, gives the same violation."""
    allocation = Profile.load(name).plugins[Stage.ALLOCATION]
    stated = Profile.load(name, settings=(*settings, f"plugins.{allocation}.solver=reference"))
    again = judged_again(AuditedPolicy(stated, seed=found.seed), found.instance, found)
    assert again is not None
    assert again.size == pytest.approx(found.size, abs=1e-4)


def test_non_cooperative_oef_rewards_underreporting_and_not_overreporting() -> None:
    made = audited("oef_noncooperative", 4)
    by_specification("oef_noncooperative", found_in(made, Property.UNDER_REPORTS))
    assert made.tallies[Property.UNDER_REPORTS].share > 0.5
    assert Property.OVER_REPORTS not in violated(made)
    assert "Schummer" in reason(made, Property.UNDER_REPORTS)


def test_cooperative_oef_is_not_always_pareto_efficient() -> None:
    fair = (Property.SHARING_INCENTIVE, Property.ENVY_FREE)
    made = audited("oef_cooperative", 60, Property.PARETO_EFFICIENT, *fair)
    found = found_in(made, Property.PARETO_EFFICIENT)
    by_specification("oef_cooperative", found)
    assert not violated(made) & set(fair)
    # The dominating allocation, by hand: it fits, and each user has at least what it had.
    better, true = found.other or (), [[Fraction(str(item)) for item in row] for row in found.instance.speedup]
    assert all(
        sum(column) <= count + 1e-9
        for column, count in zip(zip(*better, strict=True), found.instance.gpus, strict=True)
    )
    gains = [
        sum(speed * Fraction(more - less) for speed, more, less in zip(*rows, strict=True))
        for rows in zip(true, better, found.gpus, strict=True)
    ]
    assert min(gains) > -1e-6
    assert max(gains) > 0.001


def test_an_audit_finds_that_gavel_rewards_false_reports() -> None:
    level_alone = ("plugins.max_min_fairness.beyond=nothing",)
    made = audited("max_min_fairness_perf", 4, Property.UNDER_REPORTS, settings=level_alone)
    by_specification("max_min_fairness_perf", found_in(made, Property.UNDER_REPORTS), level_alone)


def traded(instance: AuditInstance, speedup: Any) -> list[list[Fraction]]:
    """Gandiva-fair's trades in fractions (OEF, equation (1)): equal parts, then trades type by type."""
    speed = [[Fraction(str(item)) for item in row] for row in speedup]
    gpus = [[Fraction(count, instance.users) for count in instance.gpus] for _ in speed]
    relative = [[item / max(row) for item in row] for row in speed]
    fastest_first = sorted(range(instance.types), key=lambda kind: -sum(row[kind] for row in relative))
    for fast, slow in combinations(fastest_first, 2):
        gain = [row[fast] / row[slow] for row in speed]
        while True:
            sellers = [user for user in range(instance.users) if gpus[user][fast] > 0]
            buyers = [user for user in range(instance.users) if gpus[user][slow] > 0]
            if not sellers or not buyers:
                break
            seller, buyer = min(sellers, key=gain.__getitem__), max(buyers, key=gain.__getitem__)
            if gain[buyer] <= gain[seller]:
                break
            others = [gain[user] for user in buyers if user != buyer and gain[user] > gain[seller]]
            price = max(others) if others else (gain[buyer] + gain[seller]) / 2
            sold = min(gpus[seller][fast], gpus[buyer][slow] / price)
            for user, sign in ((seller, -1), (buyer, 1)):
                gpus[user][fast] += sign * sold
                gpus[user][slow] -= sign * sold * price
    return gpus


def test_an_audit_finds_that_gandiva_fair_rewards_false_reports() -> None:
    found = found_in(audited("gandiva_fair", 6, Property.UNDER_REPORTS), Property.UNDER_REPORTS)
    (liar,) = found.users
    truth = [Fraction(str(item)) for item in found.instance.speedup[liar]]
    honest, lied = (traded(found.instance, stated)[liar] for stated in (found.instance.speedup, found.reports))
    before, after = (sum(speed * part for speed, part in zip(truth, row, strict=True)) for row in (honest, lied))
    assert float(after / before) - 1.0 == pytest.approx(found.size, abs=1e-9)
    assert found.size > 0.01


def test_an_audit_finds_that_fifo_grants_whole_gpus_without_sharing_incentive() -> None:
    made = audited("fifo", 4)
    assert made.policy.whole
    assert made.tallies[Property.SHARING_INCENTIVE].share == 1.0
    assert "order" in reason(made, Property.SHARING_INCENTIVE)
    assert Property.WORK_CONSERVING not in violated(made)
    assert made.insensitive


# --- its own programmes ---------------------------------------------------------------------------------------------


def test_optimum_and_dominating_allocations_equal_those_of_golden_examples() -> None:
    of = AuditInstance(speedup=((1, 2), (1, 3), (1, 4)), weight=(1, 1, 1), gpus=(1, 1), jobs=(2, 2, 2))
    assert optimum(of, whole=False).throughput.sum() == pytest.approx(5.0)
    of = AuditInstance(speedup=((1, 5, 6), (1, 2, 3), (1, 6, 7)), weight=(1, 1, 1), gpus=(1, 1, 1), jobs=(3, 3, 3))
    best = dominating(of, np.array([4.5, 2.0, 16 / 3]), whole=False)
    assert (best.throughput >= np.array([4.5, 2.0, 16 / 3]) - 1e-6).all()
    assert best.throughput.sum() >= 4.5 + 2.0 + 5.4 - 1e-6


def test_throughput_counts_only_gpus_that_jobs_can_use() -> None:
    of = AuditInstance(speedup=((1.0, 3.0),), weight=(1.0,), gpus=(2, 2), jobs=(1,))
    assert of.throughput(np.array([[2.0, 0.25]])).tolist() == [pytest.approx(0.25 * 3.0 + 0.75)]


def test_a_generator_gives_the_same_instances_for_one_seed() -> None:
    for name in GENERATORS:
        one, other = instances(name, 5, whole=True), instances(name, 5, whole=True)
        for _ in range(10):
            first = next(one)
            assert first == next(other)
            assert all(count % first.users == 0 for count in first.gpus)


# --- the command ----------------------------------------------------------------------------------------------------


def test_a_counterexample_is_stored_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(["audit", "oef_noncooperative", "--instances", "3", "--simulated", "1", "--out", str(out)]) == 0
    assert "under_reports.json: Speedups" in capsys.readouterr().out
    file = out / "oef_noncooperative" / "under_reports.json"
    assert run(["audit", "--replay", str(file)]) == 0
    assert "the same" in capsys.readouterr().out
    assert run(["audit", "oef_efficient", "--replay", str(file)]) == 1
    assert read(file).found.kind is Property.UNDER_REPORTS
    assert json.loads((out / "audit.json").read_text())["schema"] == "eunomia/audit@1"
    html = (out / "report.html").read_text()
    assert html.startswith("<!doctype html>")
    assert "src=" not in html
    assert "href=" not in html


def test_a_property_without_instances_is_reported_as_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["audit", "fifo", "--instances", "2", "--simulated", "0", "--out", str(out)]) == 0
    once, over = capsys.readouterr().out.split("over simulated rounds")
    table = over.split("\n\n")[0].strip().splitlines()
    rows = [line for line in table if line[49:50] == "0"]
    assert len(rows) == len(table) > 5
    assert all(row.endswith("not judged") and " %" not in row for row in rows)
    assert "not judged" not in once
    html = (out / "report.html").read_text()
    assert html.count("<td>not judged</td>") == len(rows)
    assert run(["audit", "fifo", "--instances", "2", "--simulated", "1", "--out", str(tmp_path / "more")]) == 0
    assert "not judged" not in capsys.readouterr().out


def test_the_option_fail_on_turns_a_violation_into_exit_code_1(tmp_path: Path) -> None:
    words = ["audit", "fifo", "--instances", "2", "--simulated", "0", "-q"]
    assert run([*words, "--out", str(tmp_path / "a"), "--fail-on", "envy_freeness"]) == 1
    assert run([*words, "--out", str(tmp_path / "b"), "--fail-on", "work_conservation"]) == 0


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((), "a profile must be named"),
        (("fifo", "--workload", "model"), "workload must be one of: mixed, ordered, models, corners, few_jobs"),
        (("fifo", "--fail-on", "envy"), "property must be one of"),
        (("fifo", "fifo"), "each profile must be named once"),
        (("fifoo",), "a policy must be a preset, a profile file or a plugin"),
        (("oef", "--set", "stages.valuation=fifo"), 'allocation "oef_cooperative" needs'),
        (("fifo", "--replay", "none.json"), "a counterexample must be a file that can be read"),
        (("fifo", "--within", "-3s"), "--within"),
    ],
)
def test_bad_input_is_an_error_that_names_the_rule(
    words: tuple[str, ...], rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *words, "--out", str(tmp_path / "out")]) == 2
    assert rule in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_policy_with_only_periodic_rounds_is_judged_by_its_first_round() -> None:
    received = AuditedPolicy(Profile.load("synergy"), seed=SEED).outcome(SMALLEST)
    assert received.whole
    assert received.gpus.sum() == 4.0


def test_an_audit_with_several_types_refuses_a_policy_for_one_type() -> None:
    class OneType(Honest):
        name = "planted_one_type"
        contracts: ClassVar[Contracts] = {
            Stage.ALLOCATION: Contract(
                needs=frozenset({Feature.ONE_GPU_TYPE}), gives=frozenset({Feature.DEVICE_SHARES})
            )
        }

    settings = {"stages.refiners": ["rounding"]}
    profile = Profile.load(OneType.name, settings=settings, registry=default_registry().adding(OneType))
    with pytest.raises(InputErrors, match="one GPU type"):
        AuditedPolicy(profile)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"schema": "other"}, "a counterexample must have the schema"),
        ({"property": "luck"}, "property must be one of"),
        ({"users": [7]}, "users must be numbers from 0 to 1"),
        ({"reports": [[1.0]]}, "reports must have a row for each user"),
        ({"instance": None}, "an instance must be a JSON object"),
    ],
)
def test_a_damaged_counterexample_is_refused(change: dict[str, object], rule: str, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write(path, Stored(profile="oef", settings=(), found=violation()))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=rule):
        read(path)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"speedup": [[1.0, 2.0]]}, "speedup must have a row for each user"),
        ({"speedup": [[1.0, -2.0], [1.0, 5.0]]}, "speedup must be finite numbers of at least 0"),
        ({"speedup": [[1.0, float("nan")], [1.0, 5.0]]}, "speedup must be finite numbers"),
        ({"speedup": [[0.0, 0.0], [1.0, 5.0]]}, "each user must run on some GPU type"),
        ({"weight": [0.0, 1.0]}, "weight must be positive"),
        ({"gpus": [1.5, 1]}, "gpus must be whole numbers of at least 1"),
        ({"jobs": [0, 1]}, "jobs must be whole numbers of at least 1"),
    ],
)
def test_an_invalid_instance_is_refused(change: dict[str, object], rule: str, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write(path, Stored(profile="oef", settings=(), found=violation()))
    plain = json.loads(path.read_text())
    plain["instance"] |= change
    path.write_text(json.dumps(plain))
    with pytest.raises(InputError, match=rule):
        read(path)


def violation() -> Violation:
    of = AuditInstance(speedup=((1.0, 2.0), (1.0, 5.0)), weight=(1.0, 1.0), gpus=(1, 1), jobs=(2, 2))
    half = ((0.5, 0.5), (0.5, 0.5))
    lie = ((1.0, 2.0), (1.0, 2.01))
    return Violation(
        kind=Property.UNDER_REPORTS, size=0.7456, instance=of, gpus=half, users=(1,), reports=lie, other=half
    )


def test_a_replay_reproduces_the_gain_from_a_false_report_in_the_golden_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Speedups (1, 2) and (1, 5): user 2 reports 2.01 for 5 and truly gets 3.7406 instead of 15/7."""
    path = tmp_path / "one.json"
    write(path, Stored(profile="oef_noncooperative", settings=(), found=violation()))
    assert run(["audit", "--replay", str(path)]) == 1  # 0.7456 is rounded
    said = capsys.readouterr().out
    assert "3.7406 (+74.6 %)" in said
    assert "2.1429" in said


def test_each_property_has_its_column_on_the_page() -> None:
    policy = AuditedPolicy(Profile.load("max_min_users"), seed=SEED)
    made = full_audit(policy, "mixed", counts=(2, 0), seconds=60.0)
    html = page([made], "Audit")
    assert all(f"<th>{kind.label}</th>" in html for kind in Property)
    assert set(JUDGES) < set(made.once.tallies)


# --- over simulated rounds ------------------------------------------------------------------------------------------


def test_an_audit_judges_the_time_received_over_many_rounds() -> None:
    policy = AuditedPolicy(Profile.load("max_min_users"), seed=SEED)
    of = AuditInstance(speedup=((1.0, 2.0), (1.0, 4.0)), weight=(1.0, 1.0), gpus=(1, 1), jobs=(2, 2))
    honest = received(policy, of)
    assert honest.gpus == pytest.approx(np.full((2, 2), 0.5), abs=0.02)
    times = over_time(policy, of, honest)
    assert times.deviation == pytest.approx(0.0, abs=0.02)
    # The last job of a user runs on one GPU, and not on the faster one in every round.
    assert 0.9 < min(times.rho) < max(times.rho) < 1.4
    # By hand: (1, 1/4) and (0, 3/4) give 1.5 and 3 instead of 1.5 and 2.5.
    assert judged_over_rounds(policy, Property.PARETO_EFFICIENT, of, honest).size == pytest.approx(0.2, abs=1e-3)


def test_a_false_report_of_rates_gains_time_over_rounds_and_replays(tmp_path: Path) -> None:
    policy = AuditedPolicy(Profile.load("oef_noncooperative"), seed=SEED)
    of = AuditInstance(speedup=((1.0, 2.0), (1.0, 5.0)), weight=(1.0, 1.0), gpus=(1, 1), jobs=(2, 2))
    lie = Lie(kind=Property.UNDER_REPORTS, users=(1,), rows=((1.0, 2.01),))
    found = lied_over_rounds(policy, of, received(policy, of), lie)
    assert found.size == pytest.approx(0.7456, abs=0.05)
    path = tmp_path / "one.json"
    write(path, Stored(profile="oef_noncooperative", settings=(), found=found))
    assert run(["audit", "--replay", str(path)]) == 0


@pytest.mark.parametrize(("name", "seconds"), [("demo", 6.0), ("gandiva_turns", 60.0), ("las", 360.0), ("fifo", 360.0)])
def test_the_audit_shortens_rounds_to_save_simulated_time(name: str, seconds: float) -> None:
    assert round_seconds(AuditedPolicy(Profile.load(name), seed=SEED)) == seconds


def test_an_audit_out_of_time_judges_one_instance_and_says_so() -> None:
    made = full_audit(AuditedPolicy(Profile.load("oef_cooperative"), seed=SEED), "mixed", counts=(50, 2), seconds=1e-3)
    assert made.cut_short
    assert {tally.instances for tally in made.once.tallies.values()} == {1}
    assert {tally.instances for tally in made.over_rounds.values()} == {0}
    assert summary(made).endswith("--within ended it")
