"""Live changes of a gang's membership: which generation comes next, as a state machine without clocks and processes.

A *generation* is one membership of a running gang: a number, and its members by rank. The workers train in the
*current* generation; they have been ordered to enter the *forming* one; the newcomers of the *planned* one get ready.
Members that have ended, or whose slots are lost, are left out at once; newcomers join once all of them are ready. A
newer generation may replace a forming one at any time, so numbers only rise; each is saved before it is ordered. At
least one member of each generation has the job's state, from a generation that has made a step.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any

from eunomia.model.shapes import value


@value
class Generation:
    """One membership of a gang."""

    number: int
    members: tuple[str, ...]
    """Ids of the containers, by rank."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"number": self.number, "members": list(self.members)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Generation":
        """Read the values of ``to_json``."""
        return cls(number=int(values["number"]), members=tuple(values["members"]))


@value
class Membership:
    """The generations of one incarnation of a job."""

    current: Generation
    forming: Generation | None = None
    """The last generation that the workers were ordered to enter; None: they have entered it."""
    planned: Generation | None = None
    """The generation that is ordered once its newcomers are ready; None: there are no newcomers."""
    highest: int = 0
    """The highest generation number assigned so far."""

    @property
    def ordered(self) -> Generation:
        """The last generation that was ordered."""
        return self.current if self.forming is None else self.forming

    @property
    def newcomers(self) -> tuple[str, ...]:
        """The containers of the planned generation that are not members of the last ordered one, by rank."""
        if self.planned is None:
            return ()
        return tuple(each for each in self.planned.members if each not in self.ordered.members)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "current": self.current.to_json(),
            "forming": None if self.forming is None else self.forming.to_json(),
            "planned": None if self.planned is None else self.planned.to_json(),
            "highest": self.highest,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Membership":
        """Read the values of ``to_json``."""
        forming, planned = values["forming"], values["planned"]
        return cls(
            current=Generation.from_json(values["current"]),
            forming=None if forming is None else Generation.from_json(forming),
            planned=None if planned is None else Generation.from_json(planned),
            highest=int(values["highest"]),
        )


@value
class Worker:
    """The known state of one container of the incarnation."""

    gpu: int
    alive: bool = True
    """Whether the worker's processes run; also False for a worker that counts as dead, such as a stopped one."""
    ready: bool = False
    """Whether the worker has reported that it is ready to join a generation."""
    useless: bool = False
    """Whether the worker may not join: its model differs, or it was not ready in time."""
    resized: int = -1
    """The newest generation that the worker has reported as entered; -1: none."""
    heard: int = -1
    """The newest generation whose order the launcher has passed on to the worker; -1: none."""
    broken: int = -1
    """The newest generation whose process group the worker has reported as failed; -1: none."""
    leaves: bool = False
    """Whether the worker has reported that it leaves the gang, for good."""


class What(Enum):
    """The kind of a ``Decision``."""

    NOTHING = "nothing"
    """The gang is as wanted, or has not yet carried out the last order."""
    ENTERED = "entered"
    """The forming generation has made a step, and is the current one."""
    ORDER = "order"
    """The workers are to be ordered to enter the forming generation."""
    PLAN = "plan"
    """A new generation is planned, whose newcomers are to be started."""
    DROP = "drop"
    """The planned generation is dropped, and its newcomers are no longer awaited."""


@value
class Decision:
    """The result of one call of ``decide``: what to do, and the generations after it."""

    what: What
    membership: Membership
    given_up: tuple[str, ...] = ()
    """Newcomers that are no longer awaited; none of them is a member of an ordered generation."""


def decide(
    membership: Membership,
    workers: Mapping[str, Worker],
    wanted: Collection[int],
    name: Callable[[int], str],
) -> Decision:
    """Return the next step towards a gang on the wanted GPUs; the caller repeats the call until it is ``NOTHING``.

    Args:
        membership: the generations before the step.
        workers: all containers of the incarnation that are not known to have left, by id.
        wanted: GPUs on which the gang is to run.
        name: returns a unique id for a new container on a GPU.
    """
    known = max((worker.heard for worker in workers.values()), default=-1)
    membership = dataclasses.replace(membership, highest=max(membership.highest, membership.ordered.number, known))
    forming = membership.forming
    if forming is not None and any(worker.resized >= forming.number for worker in workers.values()):
        entered = dataclasses.replace(membership, current=forming, forming=None)
        return Decision(what=What.ENTERED, membership=entered)
    ordered = membership.ordered
    kept = _kept(membership, workers, wanted)
    if not kept:
        return Decision(what=What.NOTHING, membership=membership)
    broken = any(workers[each].broken >= ordered.number for each in kept)
    if kept != ordered.members or known > ordered.number or broken:
        return _order(membership, kept)
    return _grow(membership, workers, wanted, kept, name)


def holders(membership: Membership, workers: Mapping[str, Worker]) -> tuple[str, ...]:
    """Return the workers that have the job's state: members of the last generation that has made a step."""
    return tuple(each for each in membership.current.members if _is_here(workers.get(each)))


def _kept(membership: Membership, workers: Mapping[str, Worker], wanted: Collection[int]) -> tuple[str, ...]:
    """Return the members of the ordered generation that stay, by rank; empty: no worker with the job's state is left.

    If only newcomers could stay, the workers that have the state stay until the newcomers have it.
    """
    have = holders(membership, workers)
    here = tuple(each for each in membership.ordered.members if _is_here(workers.get(each)))
    kept = tuple(each for each in here if workers[each].gpu in wanted)
    if not have or set(kept) & set(have):
        return kept if have else ()
    return (*(each for each in have if each not in here), *here)


def _is_here(worker: Worker | None) -> bool:
    return worker is not None and worker.alive and not worker.leaves


def _stays(worker: Worker | None, wanted: Collection[int]) -> bool:
    return worker is not None and worker.alive and worker.gpu in wanted


def _order(membership: Membership, members: tuple[str, ...]) -> Decision:
    """Order a generation of ``members``, under the planned number if it is the planned generation."""
    planned = membership.planned
    if planned is not None and planned.members == members and planned.number > membership.ordered.number:
        return Decision(what=What.ORDER, membership=dataclasses.replace(membership, forming=planned, planned=None))
    number = membership.highest + 1
    forming = Generation(number=number, members=members)
    return Decision(what=What.ORDER, membership=dataclasses.replace(membership, forming=forming, highest=number))


def _grow(
    membership: Membership,
    workers: Mapping[str, Worker],
    wanted: Collection[int],
    kept: tuple[str, ...],
    name: Callable[[int], str],
) -> Decision:
    """Plan a generation with newcomers on the wanted GPUs without a worker; order it once all newcomers are ready."""
    before = membership.newcomers
    coming = tuple(each for each in before if _stays(workers.get(each), wanted) and not workers[each].useless)
    taken = {worker.gpu for each, worker in workers.items() if worker.alive or each in (*kept, *coming)}
    new = tuple(name(gpu) for gpu in sorted(set(wanted) - taken))
    target = (*kept, *coming, *new)
    given_up = tuple(each for each in before if each not in target)
    planned = membership.planned
    if target == kept:
        made = dataclasses.replace(membership, planned=None)
        return Decision(what=What.NOTHING if planned is None else What.DROP, membership=made, given_up=given_up)
    if planned is None or planned.members != target or planned.number <= membership.ordered.number:
        number = membership.highest + 1
        made = dataclasses.replace(membership, planned=Generation(number=number, members=target), highest=number)
        return Decision(what=What.PLAN, membership=made, given_up=given_up)
    if all(workers[each].ready for each in coming):
        return _order(membership, target)
    return Decision(what=What.NOTHING, membership=membership)
