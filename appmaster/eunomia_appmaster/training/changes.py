"""The changes of a running gang as a state machine: what a worker does with the orders to grow and to shrink.

A *generation* is one membership of a gang, with a rising number that only the app master assigns. A worker belongs to
one generation at a time. All members of a generation leave it at the same step boundary, or when they lose a peer. Then
each tries to form the newest generation that it knows. The outcome of a generation is decided once, by a
compare-and-set in the store: the generation is *formed* by a member that sees all members present, or *abandoned* by a
worker that knows a newer one. Before a worker marks itself present in a generation, it abandons all generations between
its own and that one; if one of these was formed without the worker, the worker leaves. So of any two generations only
the newer one makes steps.

This module uses no torch, clock or socket: ``live`` drives the machine with real groups, and the tests explore it.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

NO_STATE = -1
"""Step of a worker that has no parameters yet, or only a part of them."""


@dataclass(frozen=True, slots=True)
class Membership:
    """One generation of a gang.

    Attributes:
        generation: number of the generation.
        members: ids of the containers, in order of rank.
    """

    generation: int
    members: tuple[str, ...]


class MemberStage(StrEnum):
    """The stage of a worker within its gang."""

    STEPPING = "stepping"
    """The worker is in a group and makes steps."""
    FORMING = "forming"
    """The worker is at a step boundary, or has just started, and waits until its target is formed or abandoned."""
    ENTERING = "entering"
    """The worker's generation is formed; it joins the group and takes the state of the member with the most steps."""
    HOLDING = "holding"
    """The worker has no group: it keeps the state of its last whole step and waits for a newer change."""
    LEFT = "left"
    """The worker is out of the gang, and ends."""


class Decided(StrEnum):
    """The outcome of a generation in the store; decided once."""

    OPEN = ""
    FORMED = "formed"
    ABANDONED = "abandoned"


class Act(StrEnum):
    """The next action of a forming worker in the store."""

    ABANDON = "abandon"
    """Try to abandon the generation that ``next_act`` names."""
    APPEAR = "appear"
    """Mark this worker as present in its target."""
    FORM = "form"
    """Try to form the worker's target, since all members are present."""
    WAIT = "wait"
    """Check the store again later."""


@dataclass(frozen=True, slots=True)
class Member:
    """One worker's view of its gang. Every method returns the view after an event and changes nothing.

    Attributes:
        name: id of the worker's container.
        stage: the worker's stage.
        current: the generation that the worker belongs to, or belonged to last; None: it is a newcomer.
        target: the generation that the worker tries to form; None unless its stage is ``FORMING``.
        newest: the newest change that the worker has received.
        step: number of whole steps in the worker's parameters; ``NO_STATE``: it has no state.
        closed: number of the newest generation below the target that the worker knows to be decided.
        appeared: whether the worker has marked itself as present in its target.
    """

    name: str
    stage: MemberStage
    current: Membership | None
    target: Membership | None
    newest: Membership
    step: int
    closed: int
    appeared: bool = False

    @classmethod
    def newcomer(cls, name: str, change: Membership) -> "Member":
        """Return the view of a worker that starts for a change."""
        return cls(name, MemberStage.FORMING, None, change, change, NO_STATE, change.generation - 1)

    @classmethod
    def member_of(cls, name: str, change: Membership, step: int) -> "Member":
        """Return the view of a worker that makes steps in a generation."""
        return cls(name, MemberStage.STEPPING, change, None, change, step, change.generation)

    def hears(self, change: Membership) -> "Member":
        """Process an order: the newest change wins, older ones are ignored."""
        if self.stage is MemberStage.LEFT or change.generation <= self.newest.generation:
            return self
        heard = replace(self, newest=change)
        return heard._aims() if self.stage is MemberStage.HOLDING else heard

    def agrees(self, generation: int) -> "Member":
        """Process the agreement at a step boundary: the lowest of the newest generations that the members know.

        Only a generation that all know makes the members leave their group, so that all leave at the same boundary.
        """
        if self.stage is not MemberStage.STEPPING or self.current is None or generation <= self.current.generation:
            return self
        return self._aims()

    def loses_a_peer(self, step: int | None = None) -> "Member":
        """Process the failure of the worker's group; ``step``: number of whole steps in its parameters, if changed."""
        if self.stage not in (MemberStage.STEPPING, MemberStage.ENTERING) or self.current is None:
            return self
        left = self if step is None else replace(self, step=step)
        if self.newest.generation > self.current.generation:
            return left._aims()
        return replace(left, stage=MemberStage.HOLDING)

    def next_act(self, outcome: Decided, present: Collection[str]) -> tuple[Act, int]:
        """Return what a forming worker does next in the store, and the number of the generation that it concerns.

        Args:
            outcome: the outcome of the worker's target, in the store.
            present: names of the members that are present in the target.
        """
        if self.stage is not MemberStage.FORMING or self.target is None:
            return Act.WAIT, 0
        if self.closed < self.target.generation - 1:
            return Act.ABANDON, self.closed + 1
        if outcome is not Decided.OPEN:
            return Act.WAIT, self.target.generation
        if self.newest.generation > self.target.generation:
            return Act.ABANDON, self.target.generation
        if self.name in self.target.members:
            if not self.appeared:
                return Act.APPEAR, self.target.generation
            if all(each in present for each in self.target.members):
                return Act.FORM, self.target.generation
        return Act.WAIT, self.target.generation

    def appears(self) -> "Member":
        """Process that the worker has marked itself as present in its target."""
        return replace(self, appeared=True)

    def learns(self, generation: int, outcome: Decided) -> "Member":
        """Process the outcome, in the store, of the worker's target or of a generation below it."""
        if self.stage is not MemberStage.FORMING or self.target is None or outcome is Decided.OPEN:
            return self
        if generation < self.target.generation:
            return self._closes(generation, outcome)
        if outcome is Decided.FORMED:
            if self.name not in self.target.members:
                return replace(self, stage=MemberStage.LEFT, target=None)
            return replace(self, stage=MemberStage.ENTERING, current=self.target, target=None)
        if self.newest.generation > generation:
            return self._aims(closed=generation)
        # Another worker has received a newer change, which this one will receive, too.
        return replace(self, stage=MemberStage.HOLDING, target=None, closed=generation)

    def enters(self, step: int) -> "Member":
        """Process that the worker has joined its group, and has the state after ``step`` whole steps, like its peers.

        If no member has a state, all members leave: the job restarts from its last checkpoint.
        """
        return replace(self, stage=MemberStage.LEFT if step == NO_STATE else MemberStage.STEPPING, step=step)

    def _aims(self, closed: int | None = None) -> "Member":
        known = max(self.closed, 0 if self.current is None else self.current.generation)
        after = known if closed is None else max(known, closed)
        return replace(self, stage=MemberStage.FORMING, target=self.newest, closed=after, appeared=False)

    def _closes(self, generation: int, outcome: Decided) -> "Member":
        if outcome is Decided.FORMED:
            # That generation was formed without this worker, and may have made steps since.
            return replace(self, stage=MemberStage.LEFT, target=None)
        return replace(self, closed=max(self.closed, generation))
