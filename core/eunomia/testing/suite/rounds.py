"""Tests of a policy's rounds: in an ordinary scene, and in adversarial ones."""

import dataclasses

import numpy as np

from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import Stages
from eunomia.testing import scenes
from eunomia.testing.bench import Rule
from eunomia.testing.builders import World
from eunomia.testing.suite.base import PolicyTests
from eunomia.testing.time_limit import HungError, time_limit


class RoundTests(PolicyTests):
    """Tests that each round of the policy keeps all rules."""

    def test_no_round_is_faulty(self) -> None:
        """Check that every stage returns the type of its hook, and that the arbiter can apply the answer."""
        self._check(self._town(), Rule.FAULTS, Rule.SCRIPT_ENDS, Rule.RETURNS)

    def test_gangs_run_whole(self) -> None:
        """Check that each job gets a size on its menu or no GPUs."""
        self._check(self._town(), Rule.GANGS)

    def test_nothing_is_overcommitted(self) -> None:
        """Check that each GPU has one holder, and that CPUs and memory suffice."""
        self._check(self._town(), Rule.COMMITMENT)

    def test_wake_up_requests_are_in_the_future(self) -> None:
        """Check that a plugin requests wake-ups only later than now, as the round would repeat endlessly otherwise."""
        self._check(self._town(), Rule.WAKES)

    def test_verdicts_use_only_known_reasons(self) -> None:
        """Check that each verdict refers to an existing claim and has a known reason."""
        self._check(self._town(), Rule.REASONS)

    def test_inputs_are_not_modified(self) -> None:
        """Check that a call leaves columns, menus, offers and memos unchanged, including the base arrays of views."""
        self._check(self._town(), Rule.INPUTS)

    def test_the_plugin_explains_its_verdicts(self) -> None:
        """Check that ``eunomia_explain``, if implemented, explains each job that the plugin turned down."""
        self._check(self._town(), Rule.EXPLAINS)

    def test_a_cluster_of_two_gpu_types_is_served(self) -> None:
        """Check all rules with two GPU types, unless a stage declares that it needs one type."""
        if self._serves_two_types():
            self._check_all(self._bench().once(scenes.two_kinds(), promises=True))

    # --- adversarial worlds -----------------------------------------------------------------------------------------

    def test_a_cluster_of_one_gpu_is_served(self) -> None:
        """Check all rules on a cluster of one GPU."""
        self._check_all(self._bench().once(scenes.one_gpu()))

    def test_a_cluster_without_jobs_is_served(self) -> None:
        """Check all rules on a cluster without apps, and with one app without jobs."""
        for world in (World("2x4 V100 16cpu 64GB"), World("2x4 V100 16cpu 64GB").app("ana")):
            self._ask(world)

    def test_gangs_larger_than_the_cluster_do_not_start(self) -> None:
        """Check all rules if every gang is larger than the cluster: no job starts."""
        run = self._bench().once(scenes.too_large())
        self._check_all(run)
        if run.started:
            self._broken("a gang larger than the cluster must wait", f"{sorted(run.started)} started")

    def test_machines_may_be_lost_during_a_round(self) -> None:
        """Check all rules if machines are lost while offers, starts and releases are in transit."""
        self._check_all(self._bench().once(scenes.lost_machine()))

    def test_machines_may_join_drain_and_leave(self) -> None:
        """Check all rules while machines join, drain and leave."""
        self._check_all(self._bench().once(self._changing()))

    def test_all_jobs_may_be_paused(self) -> None:
        """Check all rules if all jobs are paused and some are resumed."""
        self._check_all(self._bench().once(scenes.paused()))

    def test_jobs_may_change_their_batch_size(self) -> None:
        """Check all rules if jobs change their batch sizes, as announced or not."""
        self._check_all(self._bench().once(scenes.adapting()))

    def test_a_round_with_ten_thousand_jobs_ends(self) -> None:
        """Check that a round with ten thousand jobs completes, however long it takes."""
        self._check_all(self._bench().once(scenes.many(), compared=False))

    def _ask(self, world: World) -> None:
        """Call all stages on a world without jobs, in which the arbiter itself would call none."""
        stages = self._bench().stages()
        snapshot, offer = world.snapshot(now=1.0), world.offer(now=1.0)
        try:
            with time_limit(self.time_limit):
                placed = _through(stages, snapshot, offer)
        except HungError as hung:
            self._broken(Rule.RETURNS.value, f"it had not after {hung.limit} (no jobs)")
        except Exception as error:
            self._broken(Rule.FAULTS.value, f"{type(error).__name__}: {error} (no jobs)")
        if placed:
            self._broken("no job must get GPUs where there is none", f"{placed} are placed")


def _through(stages: Stages, snapshot: Snapshot, offer: Offer) -> int:
    """Call the stages in order; return the number of GPUs placed."""
    menus = stages.elasticity(snapshot)
    if stages.offer is not None:
        empty = dataclasses.replace(offer, gpus=np.empty(0, np.int64), free_gpus=0)
        offer = stages.offer(snapshot, menus, offer, stages.valuation(snapshot, menus, empty))
    allocation = stages.allocation(snapshot, menus, offer, stages.valuation(snapshot, menus, offer))
    for refine in stages.refiners:
        allocation = refine(snapshot, menus, offer, allocation)
    placement = stages.placement(snapshot, menus, offer, allocation)
    return int(placement.gpus.size)
