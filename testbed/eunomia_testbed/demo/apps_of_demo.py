"""The app files of the demo, optionally with another seed."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from eunomia_testbed.live_runs.app_source import AppSource

SEED = 7
"""The seed in the app files."""
PRESET = "demo"
ONE_SLOT = ("plugins.themis.fairness_knob=0.75", "rounds.lease=15s")
"""Overrides of the preset for a machine with one slot: each offer goes to the worst-off app only.

One slot is indivisible. If several apps bid for the slot, the winner gets it with a probability equal to its fraction;
otherwise the best-off app, which is not in the auction, gets the slot. On a GPU a start takes up to six seconds.
"""


def fitted(sources: Sequence[AppSource], *, slots: int, on_gpus: bool) -> list[AppSource]:
    """Adapt the apps to a machine: gangs fit its slots, and on GPUs the work of trials grows with the number of slots.

    For these small models a step takes 4 to 9 ms on one H200 and about 30 ms on half a core, and a start takes longer
    on a GPU, so each GPU gets the work of eight such CPU slots.
    """
    made = [source if slots >= 2 else source.with_setting("slots", 1) for source in sources]
    factor = 2 * slots if on_gpus else 1
    return [source.with_setting("max_iterations", factor * source.max_iterations) for source in made]


def settings_for(policy: str, *, slots: int) -> tuple[str, ...]:
    """Return the settings that the demo's preset needs on ``slots`` slots; other policies need none."""
    return ONE_SLOT if slots == 1 and policy == PRESET else ()


def app_sources(seed: int = SEED) -> list[AppSource]:
    """Return the demo's apps in order of their names."""
    apps = Path(str(resources.files("eunomia_testbed.demo"))) / "apps"
    scripts = Path(str(resources.files("eunomia_testbed.workloads.image")))
    files = sorted(apps.glob("*.toml"))
    return [
        AppSource(path=scripts / file.name, text=file.read_text(encoding="utf-8")).with_seed(seed) for file in files
    ]
