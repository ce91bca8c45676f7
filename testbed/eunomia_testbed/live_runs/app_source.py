"""App files to submit to a live run."""

import dataclasses
import re
import tomllib
from pathlib import Path

from eunomia.platform.toml_text import toml_value

_NAME = re.compile(r"^name = .*$", re.MULTILINE)
_SEED = re.compile(r"^seed = \d+$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppSource:
    """An app file to submit.

    Attributes:
        path: path of the file for errors; the app's scripts are in the same folder.
        text: content of the file.
    """

    path: Path
    text: str

    @property
    def name(self) -> str:
        """Return the app's name."""
        return str(tomllib.loads(self.text)["app"]["name"])

    @property
    def max_iterations(self) -> int:
        """Return the total work of a trial, in steps."""
        return int(tomllib.loads(self.text)["job"]["max_iterations"])

    def with_name(self, name: str) -> "AppSource":
        """Return the same app under another name; the file's first line ``name = ...`` is that of ``[app]``."""
        line = f"name = {toml_value(name)}"
        return dataclasses.replace(self, text=_NAME.sub(lambda _: line, self.text, count=1))

    def with_seed(self, seed: int) -> "AppSource":
        """Return the same app with another seed of its tuner."""
        return dataclasses.replace(self, text=_SEED.sub(f"seed = {seed}", self.text))

    def with_setting(self, key: str, value: object) -> "AppSource":
        """Return the same app with another value of a key that stands at the start of a line.

        If ``max_iterations`` changes, the tuner's ``min_iterations`` (first rung) is scaled by the same ratio.
        """
        text = _put(self.text, key, value)
        first = tomllib.loads(self.text).get("tuner", {}).get("min_iterations")
        if key == "max_iterations" and first is not None:
            text = _put(text, "min_iterations", max(first * int(str(value)) // self.max_iterations, 1))
        return dataclasses.replace(self, text=text)


def _put(text: str, key: str, value: object) -> str:
    return re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
