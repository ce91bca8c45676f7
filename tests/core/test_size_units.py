"""Values by size say what they are; a reader of one quantity never gets another."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eunomia import BySize, Claims, Profile, SizeUnit, Unit, Valuations
from eunomia.errors import EunomiaError, InputErrors
from eunomia.platform.registry import Registry, Status

READERS = """
from eunomia import *


class Afs:
    name = "reader_of_time"
    api = 1
    contracts = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.BY_SIZE, Feature.MANY_SIZES}),
            gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
            units=frozenset({SizeUnit.SECONDS_LEFT, SizeUnit.PROGRESS_RATE}),
        )
    }

    @hookimpl
    def eunomia_allocation(self, valuations): ...


class Unlabelled:
    name = "unlabelled"
    api = 1
    contracts = {
        Stage.VALUATION: Contract(gives=frozenset({Feature.BY_SIZE, Feature.JOB_CLAIMS}))
    }

    @hookimpl
    def eunomia_valuation(self, snapshot): ...


class Plain:
    name = "plain"
    api = 1
    contracts = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES}))}

    @hookimpl
    def eunomia_elasticity(self, snapshot): ...


class Tuned:
    name = "tuned"
    api = 1
    contracts = {
        Stage.PLACEMENT: Contract(needs=frozenset({Feature.CPU_POINTS, Feature.GRANTS})),
    }

    @hookimpl
    def eunomia_placement(self, snapshot): ...


class Retunes:
    name = "retunes"
    api = 1
    contracts = {
        Stage.PLACEMENT: Contract(needs=frozenset({Feature.GRANTS}), gives=frozenset({Feature.RETUNES})),
    }

    @hookimpl
    def eunomia_placement(self, snapshot): ...


class Opt:
    name = "opt"
    api = 1
    contracts = {
        Stage.REFINE: Contract(
            needs=frozenset({Feature.GRANTS, Feature.RETUNES}), gives=frozenset({Feature.GRANTS})
        )
    }

    @hookimpl
    def eunomia_refine(self, allocation): ...
"""


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path = tmp_path_factory.mktemp("readers") / "readers.py"
    path.write_text(READERS)
    return Registry.find(paths=[path], installed=False)


def load(registry: Registry, **stages: object) -> Profile:
    return Profile.load("default", registry=registry, settings={f"stages.{key}": item for key, item in stages.items()})


def refusal(registry: Registry, **stages: object) -> str:
    with pytest.raises(InputErrors) as caught:
        load(registry, **stages)
    (error,) = caught.value.errors
    return str(error)


def test_an_allocation_that_reads_time_refuses_values_in_loss_and_suggests_a_valuation(
    readers: Registry,
) -> None:
    assert refusal(readers, elasticity="range", valuation="slaq", allocation="reader_of_time").startswith(
        'allocation "reader_of_time" reads progress a second or seconds left by size, '
        'but valuation "slaq" gives reductions of loss by size; take "afs_curves", "afs_peak" or "optimus"'
    )
    assert load(readers, elasticity="range", valuation="optimus", allocation="reader_of_time").name == "default"


def test_values_without_a_unit_count_as_utilities_and_fit_only_allocations_of_any_unit(readers: Registry) -> None:
    said = refusal(readers, elasticity="range", valuation="unlabelled", allocation="reader_of_time")
    assert 'but valuation "unlabelled" gives utilities by size' in said
    for valuation in ("unlabelled", "optimus", "slaq"):
        load(readers, elasticity="range", valuation=valuation, allocation="marginal_gain")


def test_a_need_of_points_by_cpus_is_refused_with_an_elasticity_that_has_none(readers: Registry) -> None:
    said = refusal(readers, elasticity="plain", placement="tuned")
    assert said.startswith(
        'placement "tuned" needs rates by CPUs and memory, but elasticity "plain" gives one size a job; '
        'take "fixed", "optimistic", "range" or "throughput"'
    )


def test_a_refiner_that_needs_retunes_is_refused_with_a_placement_without_them(readers: Registry) -> None:
    said = refusal(readers, refiners=["opt"])
    assert said.startswith(
        'refiner "opt" needs retunes of running jobs, but placement "packed" gives nothing that it declares; '
        'take "retunes"'
    )
    load(readers, refiners=["opt"], placement="retunes")


def test_a_unit_without_values_by_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(READERS.replace("needs=frozenset({Feature.BY_SIZE, Feature.MANY_SIZES}),", ""))
    found: Any = next(
        item for item in Registry.find(paths=[path], installed=False).all() if item.found.name == "reader_of_time"
    )
    assert found.status is Status.BROKEN
    assert (
        "contract of allocation must need or give BY_SIZE to name units, but got PROGRESS_RATE, SECONDS_LEFT"
        in found.error
    )


def test_a_valuation_returns_its_values_in_the_requested_unit() -> None:
    rows = np.array([0], np.int32)
    time, loss = (
        BySize(claim=rows, gpus=np.array([1]), value=np.array([value]), unit=unit)
        for value, unit in ((-10.0, SizeUnit.SECONDS_LEFT), (0.5, SizeUnit.LOSS_REDUCTION))
    )
    both = Valuations(claims=Claims(unit=Unit.JOB, rows=rows), forms=(time, loss))
    assert both.by_size(SizeUnit.LOSS_REDUCTION) is loss
    assert both.by_size(SizeUnit.PROGRESS_RATE, SizeUnit.SECONDS_LEFT) is time
    assert both.by_size() is both.form(BySize) is time
    with pytest.raises(EunomiaError, match="values by size must be progress a second"):
        both.by_size(SizeUnit.PROGRESS_RATE)
