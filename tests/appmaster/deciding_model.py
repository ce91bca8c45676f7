"""All runs of a gang whose orders come from the app master's own function, ``master.changes.decide``.

Not a test. The workers and the store are those of ``changes_model``; there, orders of any kind come at any moment, here
the app master wants other GPUs at any moment and decides by what it knows. It knows what the workers have reported so
far; its decision may come at any later moment. Each GPU has one container, so a GPU whose worker has died or left is
not usable any more.
"""

from collections.abc import Iterator

from tests.appmaster.changes_model import ABSENT, DEAD, NAMES, OPEN, VIEWS, Machine, World, mask, number_of, start

from eunomia_appmaster.master.changes import Decision, Generation, Membership, What, Worker, decide, holders
from eunomia_appmaster.training.changes import Member, MemberStage
from eunomia_appmaster.training.changes import Membership as Change

MASTERS: list[tuple[Membership, int]] = []
"""What the app master knows of the generations, and the mask of the GPUs that it wants; worlds hold the number."""
_NUMBER: dict[tuple[Membership, int], int] = {}


def _interned(membership: Membership, wanted: int) -> int:
    key = membership, wanted
    if key not in _NUMBER:
        _NUMBER[key] = len(MASTERS)
        MASTERS.append(key)
    return _NUMBER[key]


def begin(members: tuple[str, ...], *, burst: int, deaths: int = 1) -> World:
    """Return a gang that makes steps in generation 0."""
    master = _interned(Membership(current=Generation(number=0, members=members)), mask(members))
    return start(members, burst=burst, deaths=deaths)._replace(master=master, sent=1)


class DecidingMachine(Machine):
    """The events of a world whose app master decides as it does in production; tests plant mistakes in ``decides``."""

    decides = staticmethod(decide)

    def is_good(self, world: World) -> bool:
        """Whether all that live make steps on the wanted GPUs, and nothing is to be decided.

        Where all wanted GPUs have lost their worker, those that have the state make steps.
        """
        if world.restarts:
            return True
        membership, wanted = MASTERS[world.master]
        ordered = membership.ordered
        here = sum(1 << at for at, view in enumerate(world.workers) if _is_here(view))
        if here != mask(ordered.members) or not self.can_step(world, ordered.number):
            return False
        if here != (wanted & ~_gone(world) or here):
            return False
        return self._decided(world).what is What.NOTHING

    def hearable(self, world: World, number: int) -> bool:
        return bool(world.sent >> number & 1)

    def master(self, world: World) -> Iterator[tuple[World, str]]:
        """Yield the worlds in which it wants other GPUs, and that of its next decision."""
        membership, wanted = MASTERS[world.master]
        gone = _gone(world)
        if world.burst:
            for gpus in range(1, 1 << len(NAMES)):
                if gpus != wanted and not gpus & gone:
                    yield world._replace(master=_interned(membership, gpus), burst=world.burst - 1), ""
        if not holders(membership, _workers(world)):
            yield world._replace(restarts=True), ""
            return
        decision = self._decided(world)
        if decision.what is not What.NOTHING:
            yield _carried_out(world, decision, wanted), ""

    def _decided(self, world: World) -> Decision:
        membership, wanted = MASTERS[world.master]
        usable = [at for at in range(len(NAMES)) if wanted >> at & 1 and not _gone(world) >> at & 1]
        return self.decides(membership, _workers(world), usable, lambda gpu: NAMES[gpu])


def _is_here(view: int) -> bool:
    return view >= 0 and VIEWS[view].stage is not MemberStage.LEFT


def _gone(world: World) -> int:
    """The mask of GPUs whose worker has died or left."""
    return sum(1 << at for at, view in enumerate(world.workers) if view != ABSENT and not _is_here(view))


def _workers(world: World) -> dict[str, Worker]:
    """What the app master knows of each container."""
    found = {}
    for at, view in enumerate(world.workers):
        if view == ABSENT:
            continue
        if not _is_here(view):
            found[NAMES[at]] = Worker(gpu=at, alive=False, leaves=view != DEAD, resized=world.stepped)
            continue
        member = VIEWS[view]
        number = member.newest.generation
        broken = member.stage is MemberStage.HOLDING and member.current is not None
        found[NAMES[at]] = Worker(
            gpu=at,
            ready=True,  # it may not be decided about before it is
            resized=world.stepped,
            heard=number if world.sent >> number & 1 else -1,
            broken=member.current.generation if broken and member.current is not None else -1,
        )
    return found


def _carried_out(world: World, decision: Decision, wanted: int) -> World:
    after = world._replace(master=_interned(decision.membership, wanted))
    for name in decision.given_up:
        after = after.having(NAMES.index(name), DEAD)
    made = decision.membership.planned if decision.what is What.PLAN else decision.membership.forming
    if decision.what not in (What.PLAN, What.ORDER) or made is None:
        return after
    missing = made.number + 1 - len(after.orders)
    if missing > 0:
        orders = (*after.orders, *(0,) * missing)
        more = (OPEN,) * missing
        after = after._replace(orders=orders, outcomes=(*after.outcomes, *more), present=(*after.present, *more))
    orders = [*after.orders]
    orders[made.number] = mask(made.members)
    sent = after.sent | (decision.what is What.ORDER) << made.number
    after = after._replace(orders=tuple(orders), sent=sent)
    change = Change(made.number, made.members)
    for name in made.members:
        at = NAMES.index(name)
        if after.workers[at] == ABSENT:
            after = after.having(at, number_of(Member.newcomer(name, change)))
    return after
