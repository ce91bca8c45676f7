"""Papers and systems by name: the presets that implement a paper, and the systems that Eunomia does not implement."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value

NOT_BUILT: Final[Mapping[str, str]] = {
    "antman": "AntMan (OSDI'20)",
    "chronus": "Chronus (SoCC'21)",
    "elasticflow": "ElasticFlow (ASPLOS'23)",
    "hived": "HiveD (OSDI'20)",
    "horus": "Horus (TPDS'21)",
    "lucid": "Lucid (ASPLOS'23)",
    "muri": "Muri (SIGCOMM'22)",
    "pollux": "Pollux (OSDI'21)",
    "salus": "Salus (MLSys'20)",
    "sia": "Sia (SOSP'23)",
}
"""Well-known systems whose policies are not implemented."""


@value
class PaperPreset:
    """A preset that implements a paper."""

    preset: str
    default: bool
    """Whether the paper's name refers to this preset."""


def presets_by_paper(presets: Mapping[str, Path]) -> dict[str, list[PaperPreset]]:
    """Return presets by the paper named in their key ``paper``, in lower case; the default preset comes first.

    Args:
        presets: file of each preset by name.
    """
    found: dict[str, list[PaperPreset]] = {}
    for name, path in presets.items():
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue  # loading the preset reports what is wrong with its file
        paper = tree.get("paper")
        if isinstance(paper, str):
            preset = PaperPreset(preset=name, default=tree.get("paper_default") is True)
            found.setdefault(paper.lower(), []).append(preset)
    return {paper: sorted(mine, key=lambda each: not each.default) for paper, mine in sorted(found.items())}


def error_of(name: str, presets: Mapping[str, Path], place: str) -> InputError | None:
    """Return the error for a name that is a paper or a system that is not implemented; None if it is neither."""
    papers = presets_by_paper(presets)
    if name.lower() in papers:
        named = [f"{each.preset}{' (its default)' * each.default}" for each in papers[name.lower()]]
        rule = f'"{name}" is a paper, and a policy must be one of its presets: {", ".join(named)}'
        return InputError(rule, value=f"the paper; eunomia plugins --paper {name.lower()} lists them", place=place)
    if name.lower() in NOT_BUILT:
        rule = f"a policy must be one that is built, and {NOT_BUILT[name.lower()]} is not"
        return InputError(rule, value=f'"{name}"; eunomia plugins lists those that are', place=place)
    return None
