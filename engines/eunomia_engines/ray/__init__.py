"""Ray: a detached actor on each node runs and watches the node's launcher.

``start`` serves an arbiter on a Ray cluster from a script. Nothing here imports Ray but ``bridge``, a process of its
own, and ``actor``, which runs in Ray's workers.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eunomia_engines.ray.script import RayArbiter

__all__ = ["start"]


def start(
    address: str = "auto",
    *,
    nodes: int | str = "all",
    cpu_slots: int | None = None,
    policy: str | None = None,
    settings: tuple[str, ...] = (),
    runtime_env: Path | str | None = None,
    state_dir: Path | str | None = None,
) -> "RayArbiter":
    """Serve an arbiter on a Ray cluster, as ``eunomia ray up`` does, or connect to the one that already serves.

    Returns once a node is up.

    Args:
        address: ``auto``, or ``HOST:PORT`` of the cluster's head; in a driver of Ray, ``auto`` is the driver's cluster.
        nodes: number of the cluster's nodes to use: ``all``, a number, or a range such as ``2..8``.
        cpu_slots: number of CPU slots per node, instead of its GPUs; None: the node's GPUs are the slots.
        policy: preset, profile file or plugin; None: ``EUNOMIA_POLICY``, else ``default``.
        settings: changes of the policy's values, each ``KEY=VALUE``.
        runtime_env: JSON file with a runtime environment of Ray for the nodes' launchers; None: none.
        state_dir: the arbiter's state folder, visible to all nodes. None: ``EUNOMIA_STATE_DIR``, else the user's.

    Raises:
        InputError: a value is invalid, Ray is not installed, or the cluster cannot be used.
        EngineSilentError: no cluster answers at the address.
        EunomiaError: no node is up within two minutes; the head keeps running.
    """
    from eunomia_engines.ray.script import start as start_on_ray

    return start_on_ray(
        address,
        nodes=nodes,
        cpu_slots=cpu_slots,
        policy=policy,
        settings=settings,
        runtime_env=runtime_env,
        state_dir=state_dir,
    )
