"""Runs a launcher whose machine has another time of day: ``shifted_launcher.py SECONDS`` and its options."""

import asyncio
import contextlib
import sys

from eunomia_appmaster.launcher.__main__ import parser, run
from eunomia_appmaster.node.system import MachineSystem


class ShiftedSystem(MachineSystem):
    """This machine, under another time of day."""

    def unix_time(self) -> float:
        """Return shifted Unix seconds."""
        return super().unix_time() + float(sys.argv[1])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(parser().parse_args(sys.argv[2:]), system=ShiftedSystem()))
