"""Joins a worker to its gang, of fixed size or live, and connects it to its container's socket."""

from typing import Any, NoReturn, Protocol

from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.leaving import end_process
from eunomia_appmaster.training.live.change_orders import ChangeOrders
from eunomia_appmaster.training.live.gang import EntryRow, LiveGang
from eunomia_appmaster.training.live.groups import PeerGroup, refuse_default_group
from eunomia_appmaster.training.misuse import Sayer, report_misuse
from eunomia_appmaster.training.orders import OrderClient


class Orders(Sayer, Protocol):
    """A worker's end of its container's socket; a protocol."""

    def poll(self) -> list[dict[str, Any]]:
        """Return the orders since the last call, oldest first."""
        ...


def joined(environment: Environment) -> tuple[Gang, Orders | None]:
    """Return a worker's gang, and its connection for orders; None: there is no app master."""
    folder = environment.container_dir
    if environment.live and folder is not None:
        orders = ChangeOrders(OrderClient(folder, environment.rank))
        gang = LiveGang(environment, orders)
        report_misuse(orders)
        refuse_default_group(lambda: gang.live)
        if not gang.newcomer:
            gang.form(_Founding(orders), 0)
        return gang, orders
    fixed = Gang(environment)
    if folder is None:
        return fixed, None
    client = OrderClient(folder, fixed.rank)
    report_misuse(client)
    return fixed, client


class _Founding:
    """Enters the generation with which a job starts, before there is any state to exchange."""

    def __init__(self, orders: ChangeOrders) -> None:
        self._orders = orders

    def exchange(self, group: PeerGroup | None, rows: list[EntryRow]) -> int:
        return 0

    def leave(self, generation: int) -> NoReturn:
        self._orders.say("leaving", {"generation": generation, "step": 0})
        self.stop(f"generation {generation} goes on without it")

    def stop(self, why: str) -> NoReturn:
        self._orders.flush()
        end_process(f"left before its first step: {why}")
