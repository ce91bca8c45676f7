"""The conformance suite of engines with a real Ray behind it; a script that waits stands for a node's launcher."""

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from tests.engines.ray_lab import ENV, WAITING, RayLab, needs_ray

from eunomia_engines.ray.engine import RayKind
from eunomia_engines.ray.request import RayRequest, namespace_of
from eunomia_engines.testing.conformance import EngineConformance, EngineLab, Saying

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.timeout(600)]


class RealRayLab:
    """A Ray whose nodes are given by itself."""

    sayings = frozenset[Saying]()
    seconds = 90.0

    def __init__(self) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="eray-"))
        launcher = folder / "launcher.sh"
        launcher.write_text(WAITING, encoding="utf-8")
        launcher.chmod(0o700)
        self.ray = RayLab(folder)
        self.states = (folder / "a", folder / "b")
        for state in self.states:
            (state / "engine" / "ray").mkdir(parents=True)
            RayRequest(address=self.ray.address, cpu_slots=1, python=str(launcher), node_dir=folder).save(state)
        self._before = {name: os.environ.get(name) for name in (*ENV, "RAY_ADDRESS")}
        os.environ |= {**ENV, "RAY_ADDRESS": self.ray.address}
        self.kind = RayKind()
        try:
            self.ray.start()
        except BaseException:
            self.close()
            raise

    def give(self, node: str) -> None:
        """Let a node that waits begin on a machine: Ray does so by itself."""

    def end(self, node: str) -> None:
        state = self.states[0]
        engine = self.kind.engine(state)
        (name,) = [actor.name for actor in engine.cluster.actors() if actor.id == node]
        engine.close()
        self.ray.driver(f"ray.kill(ray.get_actor('{name}'), no_restart=True)", namespace=namespace_of(state))

    def say(self, node: str, saying: Saying) -> None:
        raise NotImplementedError(f"a real Ray does not say {saying.value}")

    def refuse(self) -> None:
        for number in (3, 4, 5):
            self.ray.kill_raylet(f"127.0.0.{number}")
        self.ray.wait(1)

    def silence(self) -> None:
        self.ray.kill_head()

    def close(self) -> None:
        self.ray.stop()
        for pid in self.ray.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name, text in self._before.items():
            os.environ.pop(name, None)
            os.environ |= {} if text is None else {name: text}
        shutil.rmtree(self._folder, ignore_errors=True)


class TestRealRay(EngineConformance):
    name = "ray"

    def lab(self) -> EngineLab:
        return RealRayLab()
