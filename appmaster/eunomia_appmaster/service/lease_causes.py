"""Why leases changed: the causes of the rounds that ordered the changes, for the messages to app masters."""

from typing import Final

from eunomia.contract.decisions import Decision, TransitionKind

MOST_CHANGES: Final = 10_000
"""Maximum number of changes whose causes are kept (the newest)."""


class LeaseCauses:
    """The causes of the last changes of leases."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], tuple[str, ...]] = {}
        """Causes by lease and epoch: the lease's new one, and that of the GPUs that it must release."""

    def note(self, decision: Decision) -> None:
        """Keep the causes of a round's orders; orders that follow from events alone have none."""
        causes = tuple(sorted(cause.value for cause in decision.causes))
        for order in decision.transitions if causes else ():
            if order.kind is not TransitionKind.RETUNE:
                self._of |= {(int(order.lease), int(epoch)): causes for epoch in (order.epoch, order.fence) if epoch}
        while len(self._of) > MOST_CHANGES:
            del self._of[next(iter(self._of))]

    def of(self, lease: int, epoch: int) -> tuple[str, ...]:
        """Return the causes of the round that gave a lease, or its leaving GPUs, an epoch; empty: not known, or none.

        They are values of ``Cause``, in alphabetical order.
        """
        return self._of.get((lease, epoch), ())
