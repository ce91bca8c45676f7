"""Profiles of kinds are imported into an arbiter that runs, and dropped: journaled, or refused with nothing changed."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eunomia import cli
from eunomia_appmaster.explaining.dry_recovery import profiles_of
from eunomia_appmaster.protocol import arbiter_pb2 as pb

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)

GOOD = """kind = "resnet"

[[point]]
gpus = 2
gpu_type = "cpu"
locality = "island"
rate = 2.5
known = "measured"
machine = "box"
date = "2026-11-23"
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path) as made:
        yield made.ready()


def put(lab: Any, **change: str) -> pb.SetProfileResponse:
    made: pb.SetProfileResponse = lab.client().SetProfile(pb.SetProfileRequest(**change), metadata=lab.operator)
    return made


def refused(lab: Any, **change: str) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        put(lab, **change)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(caught.value.details())


def known(lab: Any) -> dict[str, int]:
    """By kind, the points that the journal has."""
    found = profiles_of(lab.arbiter.service.settings.state_dir / "journal.sqlite")
    return {kind: len(rates) for kind, rates in found.items()}


def test_an_imported_profile_is_in_the_journal_until_it_is_dropped(lab: Any) -> None:
    answer = put(lab, file=GOOD)
    assert (answer.kind, answer.points, answer.before) == ("resnet", 1, 0)
    assert known(lab) == {"resnet": 1}
    more = GOOD + GOOD.partition("\n")[2].replace("gpus = 2", "gpus = 1")
    assert (put(lab, file=more).points, known(lab)) == (2, {"resnet": 2})
    answer = put(lab, drop="resnet")
    assert (answer.points, answer.before, known(lab)) == (0, 2, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file": GOOD.replace('"cpu"', '"V100"')}, 'a GPU type must be one of cpu, but got "V100" (resnet, point 1)'),
        ({"file": GOOD.replace("gpus = 2", "gpus = 9")}, "GPUs must be from 1 to 4, but got 9 (resnet, point 1)"),
        ({"file": GOOD.replace("rate = 2.5\n", "")}, "rate must be given, but got none (the profile, point 1)"),
        ({"file": 'kind = "resnet"\n'}, "[[point]] must be given 1 to 1000 times, but got none (the profile)"),
        ({"drop": "bert"}, 'a kind must be one with known rates (resnet), but got "bert" (profiles)'),
    ],
)
def test_a_profile_with_gaps_or_of_another_cluster_is_refused_and_changes_nothing(
    lab: Any, change: dict[str, str], message: str
) -> None:
    put(lab, file=GOOD)
    assert message in refused(lab, **change)
    assert known(lab) == {"resnet": 1}


def test_a_request_without_a_change_is_refused(lab: Any) -> None:
    assert "a change must be a file or a kind to drop" in refused(lab)


def test_the_command_prints_all_errors_of_a_file_before_it_looks_for_an_arbiter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "resnet.toml"
    file.write_text(GOOD.replace("rate = 2.5\n", "").replace("gpus = 2", "gpus = 0"))
    assert cli.run(("profiles", "import", str(file), "--state-dir", str(tmp_path))) == 2
    said = capsys.readouterr().err
    assert "rate must be given, but got none (resnet.toml, point 1)" in said
    assert "gpus must be a whole number from 1 to 1000000, but got 0 (resnet.toml, point 1)" in said
    file.write_text(GOOD)
    assert cli.run(("profiles", "import", str(file), "--state-dir", str(tmp_path))) == 4
