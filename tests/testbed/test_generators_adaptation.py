"""Batch sizes that change by themselves: Accordion's and GNS' rules of Shockwave's traces."""

import gzip
import importlib.util
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia_testbed.workload.adaptation import (
    MODES,
    SAMPLES,
    TABLE_STEP,
    epochs_of,
    is_critical,
    named_model,
    regimes_of,
    split_model,
    steps_per_epoch,
)

_spec = importlib.util.spec_from_file_location("real_data", Path(__file__).with_name("real_data.py"))
real_data = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(real_data)


def test_regimes_equal_those_of_every_job_of_the_published_profile():
    """All 120 jobs of the canonical trace, epoch by epoch."""
    trace = real_data.shared_data("shockwave/canonical_120jobs_32gpus.trace").read_text().splitlines()
    profile = json.loads(
        gzip.decompress(real_data.shared_data("shockwave/canonical_120jobs_32gpus.profile.json.gz").read_bytes())
    )
    assert len(trace) == len(profile) == 120
    for line, job in zip(trace, profile, strict=True):
        name, _, _, _, _, steps, gpus, mode, *_ = line.split("\t")
        family, batch = split_model(name)
        runs = regimes_of(name, batch, int(gpus), mode, float(steps))
        assert family == job["model"]
        assert runs == tuple((epochs, size) for size, epochs in job["bs_every_epoch"]), line
        assert sum(epochs for epochs, _ in runs) == job["num_epochs"]


def test_a_static_job_never_changes_its_batch_size():
    assert regimes_of("ResNet-18", 32, 1, "static", 143_450) == ((92, 32),)


def test_under_accordion_the_first_thirty_percent_of_epochs_are_critical():
    # 92 epochs: epochs 0 to 27 are not beyond 27.6
    assert regimes_of("ResNet-18", 32, 1, "accordion", 143_450) == ((28, 32), (64, 256))


def test_accordion_returns_to_the_first_batch_size_at_critical_epochs():
    runs = regimes_of("ResNet-18", 128, 1, "accordion", 300 * steps_per_epoch("ResNet-18", 128))
    assert runs == ((91, 128), (59, 256), (10, 128), (90, 256), (10, 128), (40, 256))


def test_the_table_of_accordion_has_one_entry_for_ten_epochs():
    for family, batch in itertools.product(SAMPLES, (16, 64, 256, 512, 1024, 2048, 4096)):
        said = [is_critical(family, batch, epoch) for epoch in range(700)]
        assert all(len(set(said[at : at + TABLE_STEP])) == 1 for at in range(0, 700, TABLE_STEP)), (family, batch)


def test_gns_follows_its_table_and_returns_to_the_first_size_at_the_end():
    steps = 60 * steps_per_epoch("LM", 10)
    grown = ((11, 10), (10, 20), (20, 40))
    assert regimes_of("LM", 10, 1, "gns", steps) == (*grown, (18, 80), (1, 10))
    assert regimes_of("LM", 10, 1, "gns", steps, last_as_first=False) == (*grown, (19, 80))
    assert regimes_of("LM", 40, 1, "gns", 20 * steps_per_epoch("LM", 40)) == ((11, 40), (9, 80))


def test_models_and_sizes_without_a_table_keep_their_batch_size():
    assert regimes_of("Transformer", 64, 1, "accordion", 1000) == regimes_of("Transformer", 64, 1, "static", 1000)
    assert regimes_of("ResNet-18", 32, 8, "gns", 1_000_000) == regimes_of("ResNet-18", 32, 8, "static", 1_000_000)


@given(
    family=st.sampled_from(sorted(SAMPLES)),
    batch=st.sampled_from([1, 4, 5, 10, 16, 20, 32, 40, 64, 80, 128, 256, 512, 1024, 4096, 8192]),
    gpus=st.sampled_from([1, 2, 4, 8]),
    mode=st.sampled_from(MODES),
    steps=st.integers(1, 200_000),
)
def test_epochs_are_conserved_and_batches_never_shrink_below_the_first(family, batch, gpus, mode, steps):
    if family == "A3C":
        steps = min(steps, 2000)
    runs = regimes_of(family, batch, gpus, mode, steps)
    assert sum(epochs for epochs, _ in runs) == epochs_of(family, batch, steps)
    assert all(epochs > 0 and size >= batch for epochs, size in runs)
    assert all(one[1] != two[1] for one, two in itertools.pairwise(runs))
    assert runs[0][1] == batch


def test_model_names_with_batch_sizes_are_split_and_joined_again():
    assert split_model("ResNet-18 (batch size 32)") == ("ResNet-18", 32)
    assert split_model("A3C") == ("A3C", None)
    assert named_model(*split_model("LM (batch size 5)")) == "LM (batch size 5)"
    assert named_model("CycleGAN", None) == "CycleGAN"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("BERT", 32, 1, "gns", 100), "a model that adapts must be one of"),
        (("LM", 0, 1, "gns", 100), "batch size must be at least 1"),
        (("LM", 5, 1, "adaptive", 100), "mode must be one of static, accordion, gns"),
        (("LM", 5, 1, "gns", 0), "total_steps must be positive"),
        (("LM", 5, 1, "gns", float("nan")), "total_steps must be positive"),
    ],
)
def test_the_error_for_bad_input_names_the_rule(arguments, rule):
    with pytest.raises(InputError, match=rule):
        regimes_of(*arguments)
