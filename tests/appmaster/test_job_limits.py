"""Limits on jobs are options of serve, and hold on every node: the arbiter hands them to each launcher."""

from pathlib import Path

import pytest
from tests.appmaster.launcher_lab import eventually, lab

from eunomia.errors import InputError
from eunomia_appmaster.commands.launcher import LauncherFlags
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.node import LIMITS, Node
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.job_limits import DEFAULTS, GIB, MIB, JobLimits
from eunomia_appmaster.node.own_ends_limit import OwnEndsLimit
from eunomia_appmaster.service.__main__ import parser, settings_of

OTHERS = JobLimits(own_ends=OwnEndsLimit(ends=2, seconds=90.0), output_bytes=3 * MIB, app_bytes=GIB // 2, processes=100)


def settings(flags: ServeFlags, folder: Path) -> JobLimits:
    """The limits of the arbiter that ``serve`` starts with these flags."""
    options = parser().parse_args(["--state-dir", str(folder), *flags.arbiter_options])
    return settings_of(options).job_limits


def test_limits_on_jobs_are_options_of_the_arbiter_and_not_of_a_launcher(tmp_path: Path) -> None:
    assert settings(ServeFlags(), tmp_path) == DEFAULTS
    flags = ServeFlags(own_ends=2, own_ends_within="90s", log_mib=3, app_gib=0.5, slot_processes=100)
    assert settings(flags, tmp_path) == OTHERS
    assert flags.launcher_options == ("--control-groups", "auto", "--foreign-gpus", "warn")
    assert JobLimits.of(OTHERS.message()) == OTHERS


def test_a_launcher_stores_the_limits_of_the_arbiter_for_when_it_is_away(tmp_path: Path) -> None:
    with lab(tmp_path, limits=OTHERS) as made:
        eventually((made.state / "launcher" / LIMITS).exists, "the limits are kept")
    node = Node(made.state, "box7", local_machine.detect(1, use_gpus=False))
    assert node.limits == OTHERS


def test_limits_of_a_damaged_file_are_replaced_by_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "launcher").mkdir()
    (tmp_path / "launcher" / LIMITS).write_text('{"own_ends": "many"}')
    assert Node(tmp_path, "box7", local_machine.detect(1, use_gpus=False)).limits == DEFAULTS


def test_options_of_a_node_are_flags_of_its_launcher(tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir()
    flags = LauncherFlags(arbiter="head:7720", state=tmp_path, control_groups="none", foreign_gpus="end")
    command = flags.command
    assert command[command.index("--control-groups") + 1] == "none"
    assert command[command.index("--foreign-gpus") + 1] == "end"
    with pytest.raises(InputError, match="--foreign-gpus must be warn or end"):
        _ = LauncherFlags(arbiter="head:7720", state=tmp_path, foreign_gpus="ask").command
