"""The error of a run that a plugin's fault has ended."""

from eunomia.contract.decisions import Fault
from eunomia.errors import EunomiaError


class PluginFailedError(EunomiaError):
    """A plugin failed in a round, so the run ends (exit code 1).

    Args:
        fault: the fault of a stage.
        place: policy, seed and round.
    """

    exit_code = 1

    def __init__(self, fault: Fault, place: str) -> None:
        stage = "" if fault.stage is None else f" ({fault.stage.value})"
        value = f"{fault.plugin}{stage}: {fault.what}"
        super().__init__("a plugin must answer every round, unless faults are tolerated", value=value, place=place)
