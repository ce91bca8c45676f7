"""Round rules of other simulators (peers), by name: created for each workload, with profiles adapted to them."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia.words import did_you_mean, shown
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.simulator import Rules
from eunomia_testbed.workload import Workload


@value
class Names:
    """The names of the objects in a peer's module that define the peer's rules."""

    module: str
    options: str
    """Name of the options class."""
    make: str
    """Name of the function that creates the rules from workload, cluster, performance model and options."""
    under: str
    """Name of the function that adapts a profile to the rules, given options."""
    notes: str
    """Name of the function that describes how policies differ from the peer's, given profiles by name."""
    given: str
    """Name of the collection with the names of plugin options whose values the rules set."""

    def get(self, name: str) -> Any:
        """Import the peer's module, and return its object of this name."""
        return getattr(importlib.import_module(self.module), name)


PEERS: Final = {
    "gavel": Names(
        module="eunomia_testbed.simulator.gavel_rules",
        options="GavelRuleOptions",
        make="gavel_rules",
        under="under_rules",
        notes="rule_notes",
        given="GIVEN",
    )
}


@value
class Peer:
    """A peer (another simulator) by name, with the options of its round rules."""

    name: str
    options: Any

    @classmethod
    def named(cls, name: str, fill: Callable[[type[Any]], Any] | None = None) -> "Peer":
        """Return a peer by name.

        Args:
            name: a key of ``PEERS``.
            fill: creates the options, given their class; None: the defaults.

        Raises:
            InputError: no peer has this name, or its options are invalid.
        """
        if name not in PEERS:
            rule = f"rules must be one of {', '.join(PEERS)}"
            raise InputError(rule, value=f"{shown(name)}{did_you_mean(name, PEERS)}", place="--rules")
        kind = PEERS[name].get(PEERS[name].options)
        options = kind() if fill is None else fill(kind)
        options.check()
        return cls(name=name, options=options)

    def under(self, profile: Profile) -> Profile:
        """Return a profile adapted to the rules."""
        made: Profile = PEERS[self.name].get(PEERS[self.name].under)(profile, self.options)
        return made

    def notes(self, profiles: Mapping[str, Profile]) -> list[str]:
        """Return a sentence for each difference of the policies from the peer's."""
        made: list[str] = PEERS[self.name].get(PEERS[self.name].notes)(profiles)
        return made

    def overruled(self, settings: Iterable[str]) -> list[str]:
        """Return a sentence for each setting ``plugins.NAME.OPTION=VALUE`` that has no effect under the rules."""
        keys = [text.partition("=")[0] for text in settings if text.startswith("plugins.")]
        given = PEERS[self.name].get(PEERS[self.name].given)
        return [
            f"--set {key} does not count: options of that name get the rules' own value, which --rule changes"
            for key in keys
            if key.rpartition(".")[2] in given
        ]

    def rules(self, workload: Workload, cluster: Cluster, models: PerformanceModel | None) -> Rules:
        """Return the rules for a workload on a cluster."""
        made: Rules = PEERS[self.name].get(PEERS[self.name].make)(workload, cluster, models, self.options)
        return made
