"""The signs of life of a worker: the phase of its script at each moment, for the detection of jobs that hang."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from eunomia_appmaster.node.pulse import PulseWriter
from eunomia_appmaster.node.stack_signal import write_stacks_on_signal
from eunomia_appmaster.node.stall_watch import Phase


class Signs:
    """Writes the phase of this worker; each call costs about a microsecond.

    A script may do anything between a step and the next forward pass, so this time counts as an evaluation.

    Args:
        folder: the container's folder; None: signs are not written.
    """

    def __init__(self, folder: Path | None) -> None:
        write_stacks_on_signal(folder)
        self._pulse = PulseWriter(folder)
        self._stepped = False
        self._before_wait = Phase.START
        self.others = 0
        """Number of times that the script did anything else than steps, such as a batch of an evaluation."""

    def works(self) -> None:
        """Record that the script fetches a batch, or begins a forward pass of a step."""
        self._pulse.beat(Phase.STEPS if self._stepped else Phase.FIRST_STEP)

    def stepped(self) -> None:
        """Record that an optimizer step has ended."""
        self._stepped = True
        self._pulse.beat(Phase.EVALUATION)

    def else_works(self) -> None:
        """Record that the script does anything else, such as a batch of an evaluation."""
        self.others += 1
        self._pulse.beat(Phase.EVALUATION)

    def waits(self, for_peers: bool) -> None:
        """Record that the script waits unusually long for its peers (True), or has ended the wait (False)."""
        if for_peers:
            self._before_wait = self._pulse.phase
        self._pulse.beat(Phase.PEERS if for_peers else self._before_wait)

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Record that a checkpoint is written in the block."""
        before = self._pulse.phase
        self._pulse.beat(Phase.CHECKPOINT)
        try:
            yield
        finally:
            self._pulse.beat(before)
