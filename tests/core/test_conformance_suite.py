"""Every rule of the conformance suite catches a planted offender, and says who it is and what it did."""

import contextlib
import dataclasses
import importlib.util
import json
import re
import time
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from eunomia import (
    Allocation,
    BySize,
    Claims,
    Contract,
    Feature,
    LinearKey,
    Menus,
    Offer,
    Placement,
    PluginOptions,
    Promise,
    Reason,
    Scores,
    SizeUnit,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    curve_points,
    hookimpl,
)
from eunomia.contract.allocations import DeviceShares, Grants, Pins
from eunomia.contract.pools import available
from eunomia.contract.verdicts import Verdicts
from eunomia.testing.conformance import PolicyConformance
from eunomia.testing.time_limit import HungError, time_limit
from eunomia_plugins.allocations.marginal_gain import MarginalGain


class Greedy:
    """By arrival, whatever fits: the honest one, whom the offenders inherit."""

    name = "greedy"
    api = 1
    contracts: ClassVar[Any] = {
        Stage.ALLOCATION: Contract(
            gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}), promises=frozenset({Promise.WORK_CONSERVING})
        )
    }

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        return self.grant(snapshot, menus, offer, offer.candidates)

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        free = np.bincount(snapshot.cluster.gpu_type[offer.gpus], minlength=len(snapshot.cluster.gpu_types)).max()
        sizes = np.zeros(jobs.size, dtype=np.int64)
        for turn, job in enumerate(jobs.tolist()):
            sizes[turn] = menus.largest_at_most(job, int(free))
            free -= sizes[turn]
        return Allocation.to_jobs(jobs, sizes, otherwise=Reason.OUTRANKED)


@dataclasses.dataclass
class ByValue(Greedy):
    """Compares by value."""

    name = "by_value"


class Misspelled(Greedy):
    """A hook that nobody calls."""

    name = "misspelled"

    @hookimpl
    def eunomia_alocation(self, snapshot: Snapshot) -> None: ...


class KeywordOnly(Greedy):
    """Parameters that are never passed."""

    name = "keyword_only"

    @hookimpl
    def eunomia_allocation(self, *, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any: ...


class SilentOptions(PluginOptions):
    """Options."""

    speed: int
    depth: int = 1
    """How deep."""


class Undocumented(Greedy):
    """An option without a word or a default."""

    name = "undocumented"
    options_type = SilentOptions

    def __init__(self, options: SilentOptions) -> None: ...


class Elsewhere(Greedy):
    """A contract for a stage that it does not answer."""

    name = "elsewhere"

    def __init__(self) -> None:
        self.contracts = {Stage.PLACEMENT: Contract()}


class Raises(Greedy):
    """Raises in a round."""

    name = "raises"

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        raise ZeroDivisionError("nothing to divide by")


class Nothing(Greedy):
    """Answers None."""

    name = "nothing"

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        return None


class OffMenu(Greedy):
    """One GPU to everybody."""

    name = "off_menu"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        return Allocation.to_jobs(jobs, np.ones(jobs.size, np.int64), otherwise=Reason.OUTRANKED)


class Halves(Greedy):
    """Half a GPU to everybody."""

    name = "halves"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        return Allocation.to_jobs(jobs, np.full(jobs.size, 0.5), otherwise=Reason.OUTRANKED)  # type: ignore[arg-type]


class OneForAll:
    """Puts everybody on the same GPUs."""

    name = "one_for_all"
    api = 1

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement:
        gpus = [offer.gpus[:size] for size in allocation.amount.gpus[allocation.order]]  # type: ignore[union-attr]
        start = np.cumsum([0, *(part.size for part in gpus)]).astype(np.int64)
        return Placement(claim=allocation.order, gpus=np.concatenate([np.empty(0, np.int64), *gpus]), start=start)


class Restless(Greedy):
    """Wants to be asked again now."""

    name = "restless"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        return dataclasses.replace(super().grant(snapshot, menus, offer, jobs), wake_at=snapshot.now)


class Inventive(Greedy):
    """A reason of its own."""

    name = "inventive"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        verdicts = Verdicts(rows=jobs, reasons=np.full(jobs.size, 99, np.int32))
        return dataclasses.replace(super().grant(snapshot, menus, offer, jobs), verdicts=verdicts)


class Speechless(Greedy):
    """Cannot say why."""

    name = "speechless"

    @hookimpl
    def eunomia_explain(self, snapshot: Snapshot, decision: Any, job: str) -> Any:
        raise KeyError(job)


class Vandal(Greedy):
    """Writes to the arbiter's memory behind the view."""

    name = "vandal"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        snapshot.apps.weight.base[0] += 1.0  # type: ignore[index]
        return super().grant(snapshot, menus, offer, jobs)


class Swaps(Greedy):
    """Puts a changed copy in the place of a column."""

    name = "swaps"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        snapshot.jobs.done = snapshot.jobs.done + 1.0
        return super().grant(snapshot, menus, offer, jobs)


class Scribbles(Greedy):
    """Sorts what it was given, in place."""

    name = "scribbles"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        menus.points.rate[:] = 0.0
        offer.contention[:] = 7.0
        return super().grant(snapshot, menus, offer, jobs)


class OneType(Greedy):
    """Cannot do with two GPU types and does not say so."""

    name = "one_type"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        (_,) = snapshot.cluster.gpu_types
        return super().grant(snapshot, menus, offer, jobs)


class Dice(Greedy):
    """Throws dice of its own."""

    name = "dice"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        return super().grant(snapshot, menus, offer, np.random.default_rng().permutation(jobs))


class Remembers(Greedy):
    """Counts rounds on itself, and lets the order follow."""

    name = "remembers"

    def __init__(self) -> None:
        self.rounds = 0

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        self.rounds += 1
        return super().grant(snapshot, menus, offer, np.roll(jobs, self.rounds))


class Caches(Greedy):
    """Keeps what the snapshot alone determines, as it may."""

    name = "caches"

    def __init__(self) -> None:
        self.seen: Any = None
        self.order: dict[str, float] = {}

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        changes = None if self.seen is None else snapshot.changed(self.seen)
        if changes is None:
            self.order.clear()
        for job in jobs.tolist():
            self.order.setdefault(snapshot.jobs.id[job], float(snapshot.jobs.arrived[job]))
        self.seen = snapshot.version
        ranked = sorted(jobs.tolist(), key=lambda job: (self.order[snapshot.jobs.id[job]], job))
        return super().grant(snapshot, menus, offer, np.array(ranked, dtype=np.int32))


@dataclasses.dataclass(frozen=True)
class Turn:
    """A number from round to round."""

    version: ClassVar[int] = 1
    turn: int = 0

    def to_bytes(self) -> bytes:
        return json.dumps(self.turn).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        return cls(json.loads(data))


class Forgetful(Turn):
    """Leaves its number out of its bytes."""

    def to_bytes(self) -> bytes:
        return b"0"


class Illegible(Turn):
    """Cannot read what it wrote."""

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        raise ValueError("what does this say")


class Turns(Greedy):
    """Goes round, by a memo."""

    name = "turns"
    memo: ClassVar[type[Turn]] = Turn
    memo_types: ClassVar[Any] = {Stage.ALLOCATION: Turn}

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        last = snapshot.memos.of(self.name, Stage.ALLOCATION)
        turn = last.turn + 1 if isinstance(last, Turn) else 1
        made = super().grant(snapshot, menus, offer, np.roll(jobs, turn))
        return dataclasses.replace(made, memo=self.memo(turn))


class Forgets(Turns):
    """Its memo says less than it knows."""

    name = "forgets"
    memo = Forgetful
    memo_types: ClassVar[Any] = {Stage.ALLOCATION: Forgetful}


class Scrawls(Turns):
    """Its memo cannot be read."""

    name = "scrawls"
    memo = Illegible
    memo_types: ClassVar[Any] = {Stage.ALLOCATION: Illegible}


class Nameless(Turns):
    """Does not say what its memo is."""

    name = "nameless"
    memo_types: ClassVar[Any] = {}


class ManySizes:
    """Gives many sizes and declares none."""

    name = "many_sizes"
    api = 1

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        rows = snapshot.jobs.most.size
        owner, gpus = np.repeat(np.arange(rows, dtype=np.int32), 2), np.tile([1, 1], rows)
        gpus[0::2], gpus[1::2] = snapshot.jobs.least, snapshot.jobs.most
        curve = np.full(rows, -1, np.int32)
        curve[snapshot.active] = snapshot.active
        return Menus(curve=curve, points=curve_points(owner, gpus))


class Favours:
    """Promises no user less than its equal share, and gives the first user the GPUs of all."""

    name = "favours"
    api = 1
    contracts: ClassVar[Any] = {
        Stage.ALLOCATION: Contract(
            gives=frozenset({Feature.DEVICE_SHARES}), promises=frozenset({Promise.SHARING_INCENTIVE})
        )
    }

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, offer: Offer) -> Allocation:
        rows = np.unique(snapshot.apps.user[snapshot.jobs.app[snapshot.active]]).astype(np.int32)
        gpus = np.zeros((rows.size, offer.capacity.size))
        gpus[:1] = offer.capacity
        return Allocation(
            claims=Claims(unit=Unit.USER, rows=rows),
            amount=DeviceShares(gpus=gpus, since=snapshot.now),
            order=np.arange(rows.size, dtype=np.int32),
        )


class Boasts:
    """Declares speedups, and gives an order."""

    name = "boasts"
    api = 1
    contracts: ClassVar[Any] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.BY_TYPE}))}

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        jobs = offer.candidates
        return Valuations(
            claims=Claims(unit=Unit.JOB, rows=jobs), forms=(Scores(score=snapshot.jobs.arrived[jobs].copy()),)
        )


class Mislabels(Boasts):
    """Declares values in seconds, and gives reductions of loss."""

    name = "mislabels"
    contracts: ClassVar[Any] = {
        Stage.VALUATION: Contract(gives=frozenset({Feature.BY_SIZE}), units=frozenset({SizeUnit.SECONDS_LEFT}))
    }

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        jobs = offer.candidates
        form = BySize(
            claim=np.arange(jobs.size, dtype=np.int32),
            gpus=snapshot.jobs.least[jobs].astype(np.int64),
            value=np.ones(jobs.size),
            unit=SizeUnit.LOSS_REDUCTION,
        )
        return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(form,))


class ReadsTime(MarginalGain):
    """Reads values by size as seconds, and declares that it reads any."""

    name = "reads_time"

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        valuations.by_size(SizeUnit.SECONDS_LEFT)
        return super().eunomia_allocation(snapshot, menus, offer, valuations)


class Peeks(MarginalGain):
    """Promises to read no valuation, and reads one."""

    name = "peeks"
    contracts: ClassVar[Any] = {
        Stage.ALLOCATION: Contract(needs=frozenset({Feature.BY_SIZE}), promises=frozenset({Promise.READS_NO_VALUATION}))
    }


class Relative(Boasts):
    """Promises separable values, and gives parts of everybody's sum."""

    name = "relative"
    contracts: ClassVar[Any] = {
        Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES}), promises=frozenset({Promise.SEPARABLE}))
    }

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        jobs = offer.candidates
        score = (1.0 + snapshot.jobs.arrived[jobs]) / (1.0 + snapshot.jobs.arrived[jobs]).sum()
        return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(Scores(score=score),))


class Ages:
    """The key of a waiting job falls with time, though its row does not change."""

    name = "ages"
    api = 1
    contracts: ClassVar[Any] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES}))}

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        return Valuations.by_key(snapshot, offer, lambda jobs: self.key(snapshot, jobs))

    def key(self, snapshot: Snapshot, jobs: Any) -> LinearKey:
        return LinearKey(intercept=snapshot.jobs.arrived[jobs] - 2.0 * float(snapshot.now))


class Slopes(Ages):
    """Says openly that the key of a waiting job falls."""

    name = "slopes"

    def key(self, snapshot: Snapshot, jobs: Any) -> LinearKey:
        return LinearKey(intercept=snapshot.jobs.arrived[jobs], slope=np.full(jobs.size, -2.0))


class Compares(Ages):
    """The key of a job depends on the other jobs that it is computed with."""

    name = "compares"

    def key(self, snapshot: Snapshot, jobs: Any) -> LinearKey:
        return LinearKey(intercept=snapshot.jobs.arrived[jobs] / (1.0 + jobs.size))


class Misplaced(Boasts):
    """Promises what is not a valuation's to promise."""

    name = "misplaced"
    contracts: ClassVar[Any] = {
        Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES}), promises=frozenset({Promise.WORK_CONSERVING}))
    }


class PinsSecretly(Greedy):
    """Pins GPUs, undeclared."""

    name = "pins_secretly"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        one = [job for job in jobs.tolist() if menus.largest_at_most(job, 1) and offer.gpus.size][:1]
        rows = np.array(one, dtype=np.int32)
        ones, zero = np.ones(rows.size, np.int64), np.zeros(rows.size, np.int32)
        machine = snapshot.cluster.machine[offer.gpus[: rows.size]].astype(np.int32)
        pins = Pins(claim=zero, machine=machine, gpus=ones)
        return Allocation(claims=Claims(unit=Unit.JOB, rows=rows), amount=Grants(gpus=ones, pins=pins), order=zero)


class ReadsScores(Greedy):
    """Reads an order that it does not say it needs."""

    name = "reads_scores"

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Any:
        return self.grant(snapshot, menus, offer, offer.candidates[valuations.form(Scores).ranking()])


class Stingy(Greedy):
    """Promises to leave nobody out, and serves one a round."""

    name = "stingy"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        return super().grant(snapshot, menus, offer, jobs[:1])


class Prefers(Greedy):
    """Serves the last user first, undeclared."""

    name = "prefers"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        users = snapshot.apps.user[snapshot.jobs.app[jobs]]
        return super().grant(snapshot, menus, offer, jobs[np.argsort(-users, kind="stable")])


class LooksAway:
    """Promises to honour pins, and packs from the left."""

    name = "looks_away"
    api = 1
    contracts: ClassVar[Any] = {Stage.PLACEMENT: Contract(promises=frozenset({Promise.HONOURS_PINS}))}

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement:
        free = available(snapshot, offer, allocation).tolist()
        claims, parts = [], []
        for claim in allocation.order.tolist():
            size = int(allocation.amount.gpus[claim])  # type: ignore[union-attr]
            if size <= len(free):
                claims.append(claim)
                parts.append(np.array([free.pop(0) for _ in range(size)], dtype=np.int64))
        start = np.cumsum([0, *(part.size for part in parts)]).astype(np.int64)
        gpus = np.concatenate([np.empty(0, np.int64), *parts])
        return Placement(claim=np.array(claims, np.int32), gpus=gpus, start=start)


class Shares(Greedy):
    """Divides by the GPUs that are left beside one."""

    name = "shares"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        assert 12 // (snapshot.cluster.gpus - 1)
        return super().grant(snapshot, menus, offer, jobs)


class Crowded(Greedy):
    """Takes it that somebody is there."""

    name = "crowded"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        first = snapshot.active[0]
        return super().grant(snapshot, menus, offer, np.append(jobs[jobs == first], jobs[jobs != first]))


class Optimist(Greedy):
    """Takes it that some size always fits the cluster."""

    name = "optimist"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        fits = [job for job in jobs.tolist() if menus.sizes(job)[0] <= snapshot.cluster.gpus]
        assert fits or not jobs.size, "no job fits"
        return super().grant(snapshot, menus, offer, jobs)


class Stubborn(LooksAway):
    """Places on machines that are gone."""

    name = "stubborn"
    contracts: ClassVar[Any] = {}

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement:
        sizes = allocation.amount.gpus[allocation.order]  # type: ignore[union-attr]
        held = set(np.flatnonzero(snapshot.holdings.lease[: snapshot.cluster.gpus] >= 0).tolist())
        free = [gpu for gpu in range(snapshot.cluster.gpus) if gpu not in held - set(offer.gpus.tolist())]
        start = np.minimum(np.cumsum([0, *sizes.tolist()]), len(free)).astype(np.int64)
        return Placement(claim=allocation.order, gpus=np.array(free[: start[-1]], dtype=np.int64), start=start)


class KeepsTypes(Greedy):
    """Keeps the GPU types of the cluster that it saw first."""

    name = "keeps_types"

    def __init__(self) -> None:
        self.types = 0

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        self.types = self.types or len(snapshot.cluster.gpu_types)
        offer.capacity.reshape(self.types)
        return super().grant(snapshot, menus, offer, jobs)


class Wakes(Greedy):
    """Starts what its app has paused."""

    name = "wakes"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        everybody = np.flatnonzero(snapshot.jobs.state > 0).astype(np.int32)
        paused = everybody[snapshot.jobs.state[everybody] == 5]
        made = super().grant(snapshot, menus, offer, jobs)
        if not paused.size or not offer.gpus.size:
            return made
        return Allocation.to_jobs(paused[:1], snapshot.jobs.most[paused[:1]], otherwise=Reason.OUTRANKED)


class AdaptsOnce(Greedy):
    """Assumes that a job changes its batch size at most once."""

    name = "adapts_once"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        for job, history in snapshot.ledger.adaptations.items():
            if history.count > 1:
                raise ValueError(f"row {job} adapted twice")
        return super().grant(snapshot, menus, offer, jobs)


class Sleeps(Greedy):
    """Hangs for an hour."""

    name = "sleeps"
    most = 5

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        if jobs.size > self.most:
            time.sleep(3600.0)
        return super().grant(snapshot, menus, offer, jobs)


class Drowns(Sleeps):
    """Hangs where there are many."""

    name = "drowns"

    def grant(self, snapshot: Snapshot, menus: Menus, offer: Offer, jobs: Any) -> Allocation:
        while jobs.size > 5000:
            pass
        return Greedy.grant(self, snapshot, menus, offer, jobs)


MARGINAL: dict[str, object] = {"elasticity": "range", "allocation": "marginal_gain"}
OFFENDERS: list[tuple[type[Any], str, str, dict[str, object]]] = [
    (ByValue, "instances_are_compared_by_identity", "equal to itself alone", {}),
    (Misspelled, "name_api_and_hooks_are_valid", 'eunomia_alocation"; did you mean', {}),
    (KeywordOnly, "name_api_and_hooks_are_valid", "keyword-only", {}),
    (
        Undocumented,
        "options_are_documented_and_have_valid_defaults",
        "speed has no docstring, speed has no default",
        {},
    ),
    (Elsewhere, "contracts_name_only_stages_of_the_plugin", "placement", {}),
    (Raises, "no_round_is_faulty", "nothing to divide by", {}),
    (Nothing, "no_round_is_faulty", "Allocation expected, NoneType returned", {}),
    (OffMenu, "gangs_run_whole", "ana/0", {}),
    (Halves, "gangs_run_whole", "0.5", {}),
    (OneForAll, "nothing_is_overcommitted", "a GPU must have one holder", {}),
    (Restless, "wake_up_requests_are_in_the_future", "wake_at must be later than now", {}),
    (Inventive, "verdicts_use_only_known_reasons", "99", {}),
    (Speechless, "the_plugin_explains_its_verdicts", "KeyError", {}),
    (Vandal, "inputs_are_not_modified", "eunomia_allocation changed snapshot.apps.weight", {}),
    (Swaps, "inputs_are_not_modified", "eunomia_allocation changed snapshot.jobs.done", {}),
    (
        Scribbles,
        "inputs_are_not_modified",
        "menus.points.rate (town); eunomia_allocation changed offer.contention",
        {},
    ),
    (OneType, "a_cluster_of_two_gpu_types_is_served", "too many values to unpack", {}),
    (Dice, "the_same_seed_gives_the_same_decisions", "differs", {}),
    (Remembers, "new_and_reused_plugins_decide_the_same", "keeps more than caches on itself", {}),
    (Remembers, "a_plugin_keeps_no_state_between_arbiters", "asked twice", {}),
    (Forgets, "memos_restored_from_bytes_give_the_same_decisions", "memos must hold all that matters", {}),
    (Scrawls, "memos_restored_from_bytes_give_the_same_decisions", "what does this say", {}),
    (Nameless, "memos_restored_from_bytes_give_the_same_decisions", "memo_types", {}),
    (ManySizes, "stages_give_exactly_the_declared_features", "it gives MANY_SIZES undeclared", {}),
    (Boasts, "stages_give_exactly_the_declared_features", "it declares BY_TYPE and never gives it", {}),
    (Mislabels, "stages_give_exactly_the_declared_features", "it gives LOSS_REDUCTION", MARGINAL),
    (
        Peeks,
        "forms_read_from_a_valuation_are_declared_as_needs",
        "must not read what it says it does not read",
        {"elasticity": "range", "valuation": "slaq"},
    ),
    (
        ReadsTime,
        "forms_read_from_a_valuation_are_declared_as_needs",
        "it reads SECONDS_LEFT",
        {"elasticity": "range", "valuation": "optimus"},
    ),
    (PinsSecretly, "stages_give_exactly_the_declared_features", "it gives PINNED undeclared", {}),
    (ReadsScores, "forms_read_from_a_valuation_are_declared_as_needs", "SCORES is read and not declared", {}),
    (Prefers, "users_matter_only_where_declared", "must declare weighs_users, but step", {}),
    (Misplaced, "promises_are_made_by_the_right_stages", "WORK_CONSERVING", {}),
    (Stingy, "with_work_conservation_no_usable_gpu_is_left", "was left out where", {}),
    (Relative, "separable_values_equal_those_of_the_app_alone", "is another when", {}),
    (Ages, "linear_keys_equal_recomputed_ones", "whose row did not change, is", {}),
    (Slopes, "linear_keys_equal_recomputed_ones", "waits, and the slope of its key is -2", {}),
    (Compares, "linear_keys_equal_recomputed_ones", "alone differs from that of", {}),
    (Favours, "promises_to_users_hold", "but Speedups", {"refiners": ["rounding"]}),
    (LooksAway, "pins_are_honoured", "were pinned and free", {}),
    (Shares, "a_cluster_of_one_gpu_is_served", "ZeroDivisionError", {}),
    (Crowded, "a_cluster_without_jobs_is_served", "IndexError", {}),
    (Optimist, "gangs_larger_than_the_cluster_do_not_start", "no job fits", {}),
    (Stubborn, "machines_may_be_lost_during_a_round", "must stay within the offer", {}),
    (KeepsTypes, "machines_may_join_drain_and_leave", "cannot reshape", {}),
    (Wakes, "all_jobs_may_be_paused", "where [] are", {}),
    (AdaptsOnce, "jobs_may_change_their_batch_size", "adapted twice", {}),
    (Sleeps, "no_round_is_faulty", "sleeps.eunomia_allocation had not returned after 1.5 s (", {}),
    (
        Drowns,
        "a_round_with_ten_thousand_jobs_ends",
        "drowns.eunomia_allocation had not returned after 5 s of CPU time",
        {},
    ),
]


def suite(kind: type[Any], profile: dict[str, object] | None = None, limit: float = 30.0) -> PolicyConformance:
    body = {"plugin": kind, "profile": profile or {}, "time_limit": limit}
    return type(f"Test{kind.__name__}", (PolicyConformance,), body)()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "rule", "said", "profile"), OFFENDERS, ids=lambda part: getattr(part, "name", None))
def test_the_suite_finds_and_names_a_module_that_breaks_a_rule(
    kind: type[Any], rule: str, said: str, profile: dict[str, object]
) -> None:
    limits = {Sleeps: 0.15, Drowns: 5.0}
    with pytest.raises(AssertionError) as caught:
        getattr(suite(kind, profile, limits.get(kind, 30.0)), f"test_{rule}")()
    text = str(caught.value)
    assert text.startswith(f"{kind.name}: ")
    assert said in text, text


def test_every_rule_has_an_example_that_breaks_it() -> None:
    rules = {name.removeprefix("test_") for name in dir(PolicyConformance) if name.startswith("test_")}
    assert rules - {rule for _, rule, _, _ in OFFENDERS} == {"the_plugin_can_be_created_twice_from_its_options"}


def test_the_reference_lists_every_rule_and_module() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text()
    page = page.partition("## EngineConformance")[0]
    rules = {name for name in dir(PolicyConformance) if name.startswith("test_")}
    assert set(re.findall(r"`(test_\w+)`", page)) == rules
    for module in re.findall(r"^\| `(\w+)` \|", page.split("## PolicyConformance")[0], re.MULTILINE):
        assert importlib.util.find_spec(f"eunomia.testing.{module}") is not None, module


@pytest.mark.parametrize("kind", [Greedy, Caches, Turns], ids=lambda kind: kind.name)
def test_a_plugin_that_follows_the_rules_passes(kind: type[Any]) -> None:
    made = suite(kind)
    for name in dir(PolicyConformance):
        if name.startswith("test_"):
            getattr(made, name)()


def test_a_run_that_gets_no_cpu_time_is_not_reported_as_hanging() -> None:
    """Wait, as a run does on a machine with many busy processes, for three times the limit on CPU time."""
    with time_limit(0.2):
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            time.sleep(0.01)


def test_a_plugin_cannot_catch_the_limits_on_cpu_time_and_on_waiting() -> None:
    with pytest.raises(HungError, match=r"^0\.1 s of CPU time$"), time_limit(0.1):
        while True:
            with contextlib.suppress(Exception):
                while True:
                    pass
    with pytest.raises(HungError, match=r"^0\.3 s$"), time_limit(0.03):
        while True:
            try:
                time.sleep(60.0)
            except HungError as error:  # caught once, it is raised again
                caught = error
                time.sleep(60.0)
    assert caught.limit == "0.3 s"
