"""The table from models of traces to training programs, and the page that shows it."""

import dataclasses
import importlib.util
import shlex
from collections.abc import Iterable
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_testbed.generators import job_types, oef
from eunomia_testbed.generators.afs import MOST_GPUS
from eunomia_testbed.generators.derived import TASKS
from eunomia_testbed.generators.themis_facts import MODELS as THEMIS
from eunomia_testbed.performance.facts import MODELS
from eunomia_testbed.traces.pollux import EPOCHS
from eunomia_testbed.workload.adaptation import LARGEST_BATCH, SAMPLES
from eunomia_testbed.workloads.matching import EXACT, STAND_INS, Match, program_for, programs_of, table
from eunomia_testbed.workloads.programs import MODES, PROGRAMS, program_named

DOCS = Path(__file__).resolve().parents[2] / "docs"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def unknown(names: Iterable[str]) -> list[str]:
    """Return the names that the table lacks."""
    return [name for name in names if program_for(name).why.startswith("no program")]


def test_every_model_that_a_generator_draws_has_a_program() -> None:
    drawn = [kind.model for kind in (*job_types.GAVEL, *job_types.SHOCKWAVE)]
    drawn += [
        *SAMPLES,
        *oef.MODELS,
        *MOST_GPUS,
        *THEMIS,
        *EPOCHS,
        *(name for names in TASKS.values() for name in names),
    ]
    assert unknown(drawn) == []
    assert unknown([*MODELS]) == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared data, with the profiles of published traces")
def test_every_model_of_published_profiles_has_a_program() -> None:
    afs = (SHARED / "afs" / "afs_scaling.csv").read_text().splitlines()[1:]
    synergy = (SHARED / "synergy" / "models.csv").read_text().splitlines()[1:]
    elastic = [path.stem for path in (SHARED / "elasticflow_profiles").glob("*/*.csv")]
    names = {line.split(",")[0] for line in afs} | {line.split(",")[1] for line in synergy} | set(elastic)
    assert len(names) > 25
    assert unknown(sorted(names)) == []


def test_a_model_has_one_match_whatever_its_spelling_and_batch_size() -> None:
    assert not set(EXACT) & set(STAND_INS)
    for name in ("ResNet-18", "ResNet-18 (batch size 32)", "resnet18", "res18", "cifar10"):
        assert program_for(name).program.name == "resnet"
        assert not program_for(name).is_stand_in
    assert program_for("Transformer").why == ""
    assert "segments" in program_for("transformer").why  # Synergy's is Transformer-XL


def test_stand_ins_have_a_reason_and_a_trace_reaches_each_program() -> None:
    assert all(bool(match.why) == match.is_stand_in for match in table())
    assert {match.program for match in table()} == set(PROGRAMS)
    assert program_for("CNN") == dataclasses.replace(program_for("cnn"), model="CNN")
    assert program_for("").why == "the trace names no model"
    assert program_for("ourNet").is_stand_in


def test_forbidden_stand_ins_are_an_error_that_names_all_such_models() -> None:
    assert len(programs_of(["LM", "VGG"], stand_ins=False)) == 2
    with pytest.raises(InputError) as refused:
        programs_of(["LM", "A3C", "ourNet", "", "A3C"], stand_ins=False, place="trace.csv")
    assert str(refused.value) == (
        "each model must have a program of its own kind, since stand-ins are forbidden, but got A3C, ourNet, no model "
        "(trace.csv)"
    )
    assert [match.program.name for match in programs_of(["A3C"])] == ["mlp"]


@pytest.mark.parametrize("kind", [*job_types.GAVEL, *job_types.SHOCKWAVE], ids=lambda kind: kind.model)
def test_batch_sizes_of_a_model_keep_their_ratios(kind: job_types.JobType) -> None:
    match = program_for(kind.model)
    batch, largest = match.batch(), match.largest_batch()
    assert match.program.takes(batch.size)
    if kind.batch_size is not None:
        assert batch.size * batch.divisor == kind.batch_size
        if largest is not None and largest > batch.size:
            assert largest / batch.size == LARGEST_BATCH[kind.family] / kind.batch_size
            assert match.program.command(batch_size=batch.size, mode="gns", largest_batch=largest)


def test_batch_sizes_that_a_program_does_not_take_are_scaled_by_a_recorded_rule() -> None:
    def of(model: str, given: float | None) -> tuple[int, str]:
        found = program_for(model).batch(given)
        return found.size, found.rule

    assert of("alexnet", 512) == (256, "the trace's, divided by 2")
    assert of("ResNet-50", 64) == (64, "the trace's")
    assert of("ResNet-50 (batch size 16)", None) == (16, "the trace's")
    assert of("ResNet-50", 1) == (8, "the trace's, raised to the program's least")
    assert of("DCGAN", None) == (32, "the program's own: the trace has none")


def test_a_command_has_the_options_of_its_mode() -> None:
    program = program_named("resnet")
    assert program.command() == "python -m eunomia_testbed.workloads.image.resnet --batch-size=32"
    words = shlex.split(program.command(batch_size=16, mode="gns", epochs=3, options={"width": 4}))
    assert words[3:] == ["--batch-size=16", "--mode=gns", "--largest-batch=64", "--epochs=3", "--width=4"]
    with pytest.raises(InputError, match="must be 8 to 256"):
        program.command(batch_size=512)
    with pytest.raises(InputError, match="must be one of static, accordion, gns"):
        program.command(mode="pollux")
    with pytest.raises(InputError, match="must be below the largest, 256"):
        program.command(batch_size=256, mode="accordion")
    with pytest.raises(InputError, match="did you mean"):
        program_named("restnet")


def test_every_program_is_a_module_with_all_modes() -> None:
    for program in PROGRAMS:
        assert importlib.util.find_spec(program.module) is not None
        assert program.modes == MODES
        assert program.smallest_batch <= program.batch_size <= program.largest_batch < program.samples / 4


def test_the_page_shows_the_programs_and_the_table() -> None:
    page = (DOCS / "reference" / "workloads.md").read_text()
    for program in PROGRAMS:
        bounds = f"{program.smallest_batch} to {program.largest_batch}"
        row = f"{program.name}` | {program.task} | {program.summary} | {program.batch_size} | {bounds} | "
        assert f"| `{row}{program.samples} | `{program.metric}` | `--{program.cost_option}` |" in page, program.name
    rows = [line for line in page.splitlines() if line.startswith("| ") and line.endswith(("exact |", "stand-in |"))]
    assert rows == [_row(match) for match in table()]


def _row(match: Match) -> str:
    kind = "stand-in" if match.is_stand_in else "exact"
    return f"| {match.model} | `{match.program.name}` | {match.why or 'the same kind of network'} | {kind} |"
