"""The changes of a running gang as a state machine: what a worker does with the orders to grow and to shrink.

A *generation* is one membership of a gang, with a number that only the app master gives, always rising. A worker
belongs to one generation at a time. All members of a generation leave it at the same step boundary, or when they lose a
peer. Then each tries to form the newest generation that it has heard of. The outcome of a generation is decided once,
by a compare-and-set in the store: it is *formed* by a member that sees all members present, or *abandoned* by a worker
that has heard of a newer one. Before a worker is present in a generation, it abandons all generations between its own
and that one; where one of them was formed without it, it leaves. So of any two generations only the newer one makes
steps.

There is no torch here, no clock and no socket: ``live`` drives this machine with real groups, and the tests explore it.
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
        generation: its number.
        members: ids of the containers, in order of rank.
    """

    generation: int
    members: tuple[str, ...]


class MemberStage(StrEnum):
    """What a worker does."""

    STEPPING = "stepping"
    """It is in a group and makes steps."""
    FORMING = "forming"
    """It stands at a step boundary, or has just started, and waits until its target is formed or abandoned."""
    ENTERING = "entering"
    """Its generation is formed; it joins the group and takes the state of the furthest member."""
    HOLDING = "holding"
    """It has no group: it holds its last whole step and waits for a newer change."""
    LEFT = "left"
    """It is out of the gang, and ends."""


class Decided(StrEnum):
    """What the store says of a generation; decided once."""

    OPEN = ""
    FORMED = "formed"
    ABANDONED = "abandoned"


class Act(StrEnum):
    """What a forming worker does next in the store."""

    ABANDON = "abandon"
    """Try to abandon the generation that ``next_act`` names."""
    APPEAR = "appear"
    """Say that it is present in its target."""
    FORM = "form"
    """Try to form its target, since all members are present."""
    WAIT = "wait"
    """Look again later."""


@dataclass(frozen=True, slots=True)
class Member:
    """One worker's view of its gang. Every method returns the view after an event and changes nothing.

    Attributes:
        name: id of its container.
        stage: what it does.
        current: the generation that it belongs to, or belonged to last; None: a newcomer.
        target: the generation that it tries to form; None unless it is forming.
        newest: the newest change that it has heard of.
        step: number of whole steps that its parameters have; ``NO_STATE``: it has none.
        closed: number of the newest generation below its target that it knows to be decided.
        appeared: whether it has said that it is present in its target.
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
        """Process the agreement at a step boundary: the lowest of the newest generations that its peers have heard of.

        Only what all have heard of makes all leave their group, so that they do so at the same boundary.
        """
        if self.stage is not MemberStage.STEPPING or self.current is None or generation <= self.current.generation:
            return self
        return self._aims()

    def loses_a_peer(self, step: int | None = None) -> "Member":
        """Process that its group has failed; ``step`` is what its parameters have, if that has changed."""
        if self.stage not in (MemberStage.STEPPING, MemberStage.ENTERING) or self.current is None:
            return self
        left = self if step is None else replace(self, step=step)
        if self.newest.generation > self.current.generation:
            return left._aims()
        return replace(left, stage=MemberStage.HOLDING)

    def next_act(self, outcome: Decided, present: Collection[str]) -> tuple[Act, int]:
        """Return what a forming worker does next in the store, and the number of the generation that it concerns.

        Args:
            outcome: of its target, in the store.
            present: names of those that are present in its target.
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
        """Process that it has said that it is present in its target."""
        return replace(self, appeared=True)

    def learns(self, generation: int, outcome: Decided) -> "Member":
        """Process the outcome of its target, or of a generation below its target, in the store."""
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
        # Another one has heard of a newer change, which is on its way to this one, too.
        return replace(self, stage=MemberStage.HOLDING, target=None, closed=generation)

    def enters(self, step: int) -> "Member":
        """Process that it has joined its group, and that its parameters have ``step`` whole steps, like its peers'.

        Where no member has a state, each leaves: the job restarts from its last checkpoint.
        """
        return replace(self, stage=MemberStage.LEFT if step == NO_STATE else MemberStage.STEPPING, step=step)

    def _aims(self, closed: int | None = None) -> "Member":
        known = max(self.closed, 0 if self.current is None else self.current.generation)
        after = known if closed is None else max(known, closed)
        return replace(self, stage=MemberStage.FORMING, target=self.newest, closed=after, appeared=False)

    def _closes(self, generation: int, outcome: Decided) -> "Member":
        if outcome is Decided.FORMED:
            # It was not needed for that one, which may have made steps since.
            return replace(self, stage=MemberStage.LEFT, target=None)
        return replace(self, closed=max(self.closed, generation))
