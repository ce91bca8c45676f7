"""The app files of the demo, with another seed where one is asked for."""

import dataclasses
import re
from importlib import resources
from pathlib import Path

SEED = 7
"""The seed that stands in the app files."""

_SEED = re.compile(r"^seed = \d+$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppSource:
    """An app file to be submitted.

    Attributes:
        path: as errors name it; its folder is where the scripts are.
        text: what it says.
    """

    path: Path
    text: str

    def with_seed(self, seed: int) -> "AppSource":
        """The same app with another seed for its tuner."""
        return dataclasses.replace(self, text=_SEED.sub(f"seed = {seed}", self.text))

    def with_setting(self, key: str, value: object) -> "AppSource":
        """The same app with another plain value for a key that stands at the beginning of a line."""
        return dataclasses.replace(
            self, text=re.sub(rf"^{key} = .*$", f"{key} = {value}", self.text, flags=re.MULTILINE)
        )


def app_sources(seed: int = SEED) -> list[AppSource]:
    """The demo's apps in order of name."""
    here = Path(str(resources.files("eunomia_testbed.demo")))
    files = sorted((here / "apps").glob("*.toml"))
    return [
        AppSource(path=here / "workloads" / file.name, text=file.read_text(encoding="utf-8")).with_seed(seed)
        for file in files
    ]
