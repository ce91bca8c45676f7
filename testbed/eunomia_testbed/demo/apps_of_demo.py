"""The app files of the demo, optionally with another seed."""

import dataclasses
import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

SEED = 7
"""The seed in the app files."""
PRESET = "demo"
ONE_SLOT = ("plugins.themis.fairness_knob=0.75", "rounds.lease=15s")
"""Settings for the preset on a machine with one slot: each offer goes to the worst-off app alone.

One slot cannot be divided. If several apps bid for it, the winner gets it with a probability equal to its fraction;
otherwise the best-off app, which is not in the auction, gets it again. On a GPU a start takes up to six seconds.
"""

_SEED = re.compile(r"^seed = \d+$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppSource:
    """An app file to submit.

    Attributes:
        path: path that errors name; the scripts are in its folder.
        text: content of the file.
    """

    path: Path
    text: str

    @property
    def max_iterations(self) -> int:
        """Return the total work of a trial, in steps."""
        return int(tomllib.loads(self.text)["job"]["max_iterations"])

    def with_seed(self, seed: int) -> "AppSource":
        """Return the same app with another seed for its tuner."""
        return dataclasses.replace(self, text=_SEED.sub(f"seed = {seed}", self.text))

    def with_setting(self, key: str, value: object) -> "AppSource":
        """Return the same app with a key at the start of a line set to another plain value.

        The first rung of a tuner keeps its ratio to ``max_iterations``.
        """
        text = _put(self.text, key, value)
        first = tomllib.loads(self.text).get("tuner", {}).get("min_iterations")
        if key == "max_iterations" and first is not None:
            text = _put(text, "min_iterations", max(first * int(str(value)) // self.max_iterations, 1))
        return dataclasses.replace(self, text=text)


def _put(text: str, key: str, value: object) -> str:
    return re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)


def fitted(sources: Sequence[AppSource], *, slots: int, on_gpus: bool) -> list[AppSource]:
    """Adapt the apps to a machine: gangs fit its number of slots, and trials have more work the more GPUs there are.

    For these small models a step takes 4 to 9 ms on one H200 and about 30 ms on half a core, and a start takes longer
    on a GPU, so each GPU gets the work of eight such CPU slots.
    """
    made = [source if slots >= 2 else source.with_setting("slots", 1) for source in sources]
    factor = 2 * slots if on_gpus else 1
    return [source.with_setting("max_iterations", factor * source.max_iterations) for source in made]


def settings_for(policy: str, *, slots: int) -> tuple[str, ...]:
    """Return the settings that the demo's preset needs on a machine with this many slots; none for other policies."""
    return ONE_SLOT if slots == 1 and policy == PRESET else ()


def app_sources(seed: int = SEED) -> list[AppSource]:
    """Return the demo's apps in order of their names."""
    here = Path(str(resources.files("eunomia_testbed.demo")))
    files = sorted((here / "apps").glob("*.toml"))
    return [
        AppSource(path=here / "workloads" / file.name, text=file.read_text(encoding="utf-8")).with_seed(seed)
        for file in files
    ]
