"""The conformance suite of engines with a real Slurm behind it; a script that waits stands for a node's launcher."""

import os
import tempfile
from pathlib import Path

import pytest
from tests.engines.slurm_lab import SlurmLab, needs_slurm

from eunomia_engines.slurm.engine import SlurmKind
from eunomia_engines.slurm.job_nodes import job_of_node
from eunomia_engines.slurm.request import FOLDER, Request
from eunomia_engines.testing.conformance import EngineConformance, EngineLab, Saying

pytestmark = [needs_slurm, pytest.mark.slow, pytest.mark.timeout(300)]
LAUNCHER = """#!/bin/bash
[ "${@: -1}" != --clear ] || exit 0
trap 'exit 0' TERM
sleep 200 & wait
"""


class RealLab:
    """A Slurm whose nodes are given by itself."""

    sayings = frozenset[Saying]()
    seconds = 40.0

    def __init__(self, *, nodes_per_job: int = 1) -> None:
        folder = Path(tempfile.mkdtemp(prefix="eunomia-slurm-"))
        launcher, setup = folder / "launcher.sh", folder / "env.sh"
        launcher.write_text(LAUNCHER, encoding="utf-8")
        launcher.chmod(0o700)
        setup.write_text(f"EUNOMIA_PYTHON={launcher}\n", encoding="utf-8")
        self.states = (folder / "a", folder / "b")
        for state in self.states:
            (state / FOLDER).mkdir(parents=True)
            given = {"least": nodes_per_job, "most": 2 * nodes_per_job, "nodes_per_job": nodes_per_job}
            Request(**given, seconds=600.0, cpu_slots=1, setup=setup, python="python", node_dir=folder).save(state)
        (folder / "slurm").mkdir()
        self.lab = SlurmLab(folder / "slurm")
        self._before = os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(self.lab.config)
        self.kind = SlurmKind()
        try:
            self.lab.start()
        except BaseException:
            self.close()
            raise

    def give(self, node: str) -> None:
        """Let a node that waits begin on a machine: Slurm does so by itself."""

    def end(self, node: str) -> None:
        self.lab.call("scancel", job_of_node(node))

    def say(self, node: str, saying: Saying) -> None:
        raise NotImplementedError(f"a real Slurm does not say {saying.value}")

    def refuse(self) -> None:
        self.lab.call("scontrol", "update", "PartitionName=gpu", "State=INACTIVE")

    def silence(self) -> None:
        self.lab.kill("slurmctld")

    def close(self) -> None:
        self.lab.stop()
        if self._before is None:
            os.environ.pop("SLURM_CONF", None)
        else:
            os.environ["SLURM_CONF"] = self._before


class TestRealSlurm(EngineConformance):
    name = "slurm"

    def lab(self) -> EngineLab:
        return RealLab()


class TestRealSlurmWithTwoNodesAJob(EngineConformance):
    name = "slurm"
    group = 2

    def lab(self) -> EngineLab:
        return RealLab(nodes_per_job=self.group)
