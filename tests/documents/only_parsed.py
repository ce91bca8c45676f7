"""Reads ``only_parsed.toml``: commands of the documents that do not run, each with the reason."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_TREE: Final = tomllib.loads((Path(__file__).parent / "only_parsed.toml").read_text(encoding="utf-8"))
ONLY_PARSED: Final[Mapping[str, tuple[str, ...]]] = {
    each["reason"]: tuple(each["commands"]) for each in _TREE["parsed"]
}
"""By reason, commands as a page has them, on one line and without a comment."""

REASON_OF: Final[Mapping[str, str]] = {text: reason for reason, texts in ONLY_PARSED.items() for text in texts}
