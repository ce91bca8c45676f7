"""Serves an arbiter on a Ray cluster from a script, such as a driver of Ray."""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from eunomia.extras import require
from eunomia_appmaster.client import Client
from eunomia_appmaster.service.settings import default_state_dir
from eunomia_engines.head.starting import await_head, members_of
from eunomia_engines.ray.ending import end_all
from eunomia_engines.ray.engine import RayEngine
from eunomia_engines.ray.request import NAMES, RayRequest, check_address, nodes_option, read_runtime_env
from eunomia_engines.ray.starting import ArbiterFlags, begin, serves


class RayArbiter:
    """An arbiter that serves on a Ray cluster; a context manager, which ends the arbiter with the block.

    Args:
        state: the arbiter's state folder.
        engine: provides its nodes.
    """

    def __init__(self, state: Path, engine: RayEngine) -> None:
        self.state, self._engine = state, engine

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def client(self) -> Client:
        """Return a client of the arbiter, to submit apps and wait for them."""
        return Client(state_dir=self.state)

    def down(self, *, now: bool = False) -> None:
        """End the nodes and the head; running jobs save first, and resume after the next ``start``.

        Args:
            now: end the head first, so that the last saves on the nodes are not reported to it.

        Raises:
            EunomiaError: a node or the head does not end in time.
        """
        end_all(self.state, self._engine, now=now)


def start(
    address: str,
    *,
    nodes: int | str,
    cpu_slots: int | None,
    policy: str | None,
    settings: tuple[str, ...],
    runtime_env: Path | str | None,
    state_dir: Path | str | None,
) -> RayArbiter:
    """Serve an arbiter on a Ray cluster; see ``eunomia_engines.ray.start``."""
    require(["ray"], of="eunomia_engines.ray.start")
    state = (default_state_dir() if state_dir is None else Path(state_dir)).resolve()
    if serves(state):
        return RayArbiter(state, RayEngine(RayRequest.load(state), state))
    least, most = nodes_option(str(nodes))
    request = RayRequest(
        address=_of_driver(check_address(address)),
        least=least,
        most=most,
        cpu_slots=cpu_slots,
        runtime_env=read_runtime_env(None if runtime_env is None else Path(runtime_env)),
    )
    named = policy or os.environ.get("EUNOMIA_POLICY") or "default"
    engine, notes = begin(request, ArbiterFlags(policy=named, settings=settings), state)
    sys.stderr.write("".join(f"note: {note}\n" for note in notes))
    await_head(NAMES, state, lambda: any(node.state == "up" for node in members_of(state).values()), "a node is up")
    return RayArbiter(state, engine)


def _of_driver(address: str) -> str:
    """Return the address of the cluster of which this process is a driver, if ``auto`` is given; else ``address``."""
    ray = sys.modules.get("ray")
    if address != "auto" or ray is None or not ray.is_initialized():
        return address
    return str(ray.get_runtime_context().gcs_address)
