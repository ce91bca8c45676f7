"""The keeper's access to the arbiter (through a client) and to the records of pilots in the state folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from eunomia_appmaster.client import OVER, Client
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_engines.engine import Engine, EngineNode
from eunomia_engines.keeper.demand import AppNeed
from eunomia_engines.keeper.plan import Life, Member
from eunomia_engines.pilots.records import CLEAN, drop_ends, drop_pilot, end_of, pilots


class Arbiter:
    """The arbiter, through a client with the operator's token."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def members(self) -> Mapping[str, Member]:
        """Return the arbiter's nodes by name."""
        return {
            node.node: Member(state=node.state, held=node.held, leaves=node.leaves, slots=sum(node.slots.values()))
            for node in self._client.nodes()
        }

    def needs(self) -> Sequence[AppNeed]:
        """Return the number of slots that each live app could use, and the number that it holds."""
        return [need_of(app) for app in self._client.list().apps if app.state not in OVER]

    def drain(self, name: str, why: str, within: float) -> None:
        """Drain a node for the reason ``why``; its leases end within ``within`` seconds."""
        self._client.drain_node(name, why, within_seconds=within)

    def remove(self, name: str, why: str, *, is_off: bool) -> None:
        """Remove a node once it is empty; ``is_off``: at once, since its processes are known to have ended."""
        self._client.remove_node(name, why, is_off=is_off)


def need_of(app: pb.App) -> AppNeed:
    """Return the number of slots that an app could use, and the number that it holds.

    The arbiter bounds ``max_slots`` by the most slots that the cluster has had, which more nodes would raise. So each
    job that waits counts as one more usable slot.
    """
    return AppNeed(usable=max(app.max_slots, app.slots + app.waiting), held=app.slots)


class RecordedPilots:
    """Matches the engine's nodes with the arbiter's nodes, by the records of pilots in the state folder.

    Args:
        folder: the engine's folder, below the state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lives(self, engine: Engine) -> Sequence[Life]:
        """Return all nodes that the engine lists or that have a record, in the order of their starts."""
        listed = {node.id: node for node in engine.nodes()}
        begun = pilots(self._folder)
        drop_ends(self._folder, listed.keys() | begun.keys())
        found = [
            _life(job, listed.get(job), begun[job].node if job in begun else "", end_of(self._folder, job))
            for job in {**listed, **begun}
        ]
        return sorted(found, key=lambda life: begun[life.id].began_at if life.id in begun else float("inf"))

    def forget(self, life: str) -> None:
        """Delete the record of a node that has ended; its exit code stays known while the engine lists the node."""
        drop_pilot(self._folder, life)


def _life(job: str, node: EngineNode | None, name: str, code: int | None) -> Life:
    return Life(id=job, node=node, name=name, is_clean=code == CLEAN, has_failed=code not in (None, CLEAN))
