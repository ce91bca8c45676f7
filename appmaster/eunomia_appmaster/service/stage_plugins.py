"""The plugins of a profile's stages as messages, for the agents of app masters."""

import json
import tomllib

from eunomia.platform.profiles import Profile
from eunomia.units import Stage
from eunomia_appmaster.protocol import arbiter_pb2 as pb


class StagePlugins:
    """Resolves each stage of a profile once: this takes tens of milliseconds and is needed at every registration.

    Args:
        profile: the configured profile.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._known: dict[Stage, pb.StagePlugin] = {}

    def of(self, stage: Stage) -> pb.StagePlugin:
        """Return the plugin of a stage, with its settings in the profile."""
        if stage not in self._known:
            self._known[stage] = self._resolved(stage)
        return self._known[stage]

    def _resolved(self, stage: Stage) -> pb.StagePlugin:
        name = self._profile.plugins[stage]
        tables = tomllib.loads(self._profile.resolved()).get("plugins", {})
        options = {key: item for key, item in tables.get(name, {}).items() if key != "use"}
        use = str(tables.get(name, {}).get("use", name))
        version = self._profile.registry.listed(use).found.version
        return pb.StagePlugin(name=use, version=version, options_json=json.dumps(options))
