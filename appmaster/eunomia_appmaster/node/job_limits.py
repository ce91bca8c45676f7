"""Limits on jobs and apps that hold on all nodes of a cluster; each launcher gets them from the arbiter."""

from typing import Final, Self

from eunomia.model.shapes import value
from eunomia_appmaster.node.own_ends_limit import DEFAULT_LIMIT, OwnEndsLimit
from eunomia_appmaster.protocol import launcher_pb2 as pb

MIB: Final = 1 << 20
GIB: Final = 1 << 30


@value
class JobLimits:
    """Limits on what a job or an app may use.

    Attributes:
        own_ends: limit on ends of an app master before its app is suspended.
        output_bytes: bytes of each of a job's two output files; 0: no limit.
        app_bytes: bytes of disk space for each app's folder; 0: no limit.
        processes: number of processes and threads of one worker, if control groups can limit it.
    """

    own_ends: OwnEndsLimit = DEFAULT_LIMIT
    output_bytes: int = 64 * MIB
    app_bytes: int = 0
    processes: int = 4096

    def message(self) -> pb.JobLimits:
        """Return the limits as a message to launchers."""
        return pb.JobLimits(
            own_ends=self.own_ends.ends,
            own_ends_seconds=self.own_ends.seconds,
            output_bytes=self.output_bytes,
            app_bytes=self.app_bytes,
            processes=self.processes,
        )

    @classmethod
    def of(cls, message: pb.JobLimits) -> Self:
        """Return the limits in the arbiter's message."""
        return cls(
            own_ends=OwnEndsLimit(ends=message.own_ends, seconds=message.own_ends_seconds),
            output_bytes=message.output_bytes,
            app_bytes=message.app_bytes,
            processes=message.processes,
        )


DEFAULTS: Final = JobLimits()
