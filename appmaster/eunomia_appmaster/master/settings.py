"""The settings of an app master's process."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from eunomia.errors import EunomiaError
from eunomia.model.shapes import builds
from eunomia_appmaster.app.submission import MORE_TRIALS


@builds
class Settings:
    """An app master's settings, which the launcher passes as environment variables."""

    app: str
    attempt: int
    app_dir: Path
    address: str
    token_file: Path
    node: str
    node_token_file: Path
    launcher_file: Path
    part: int = 1
    """Number of the start within the attempt; restarts by the launcher increase it."""
    login: str = ""
    """The account that the app's processes run under; empty: the launcher's own."""
    more_trials: tuple[int, ...] = ()
    """Sizes of the groups of trials that were added after the search had ended, in order."""

    @classmethod
    def read(cls, app_dir: Path, variables: Mapping[str, str] = os.environ) -> Self:
        """Read the settings from environment variables.

        Raises:
            EunomiaError: a variable is missing or malformed.
        """

        def get(name: str) -> str:
            if not variables.get(name):
                raise EunomiaError(f"{name} must be set for an app master", value="nothing", place="environment")
            return variables[name]

        attempt = get("EUNOMIA_ATTEMPT")
        if not attempt.isdecimal():
            raise EunomiaError("EUNOMIA_ATTEMPT must be a number", value=f'"{attempt}"', place="environment")
        return cls(
            app=get("EUNOMIA_APP"),
            attempt=int(attempt),
            app_dir=app_dir.resolve(),
            address=get("EUNOMIA_ADDRESS"),
            token_file=Path(get("EUNOMIA_TOKEN_FILE")),
            node=get("EUNOMIA_NODE"),
            node_token_file=Path(get("EUNOMIA_NODE_TOKEN_FILE")),
            launcher_file=Path(get("EUNOMIA_LAUNCHER_FILE")),
            part=int(variables.get("EUNOMIA_PART") or 1),
            login=variables.get("EUNOMIA_LOGIN", ""),
            more_trials=tuple(_sizes(variables.get(MORE_TRIALS, ""))),
        )


def _sizes(text: str) -> Iterator[int]:
    """Yield the sizes of groups of trials in a variable such as ``8,4``."""
    for part in filter(None, text.split(",")):
        if not part.isdecimal() or int(part) < 1:
            raise EunomiaError(f"{MORE_TRIALS} must be numbers above 0", value=f'"{text}"', place="environment")
        yield int(part)
