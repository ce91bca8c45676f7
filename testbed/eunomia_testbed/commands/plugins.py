"""``eunomia plugins``: lists installed plugins with their errors, and resolves profiles."""

import json
from typing import Annotated, Any

import typer

from eunomia.errors import InputError
from eunomia.platform.papers import NOT_BUILT, presets_by_paper
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Listed, Registry, Status, default_registry
from eunomia.words import did_you_mean, shown

HEADERS = ("PLUGIN", "VERSION", "STAGES", "FROM", "STATUS")


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    resolve: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Print a profile merged, each line with its origin.")
    ] = None,
    paper: Annotated[
        str | None, typer.Option(metavar="NAME", help="List the presets of a paper, such as gavel.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="With --resolve: change a value.")
    ] = None,
) -> None:
    """List plugins and profiles, or resolve a profile."""
    registry = default_registry()
    if resolve is not None:
        profile = Profile.load(resolve, settings=settings or (), registry=registry, flag="--resolve")
        typer.echo(json.dumps(_resolved(profile)) if as_json else "\n".join(_annotated(profile.origins())))
    elif paper is not None:
        _tell_paper(paper, registry, as_json=as_json)
    elif as_json:
        rows = [_facts(item) for item in registry.all()]
        facts = {"schema": "eunomia/plugins@1", "plugins": rows, "profiles": list(registry.presets())}
        typer.echo(json.dumps(facts))
    else:
        typer.echo("\n".join(_table(registry)))


def _tell_paper(paper: str, registry: Registry, *, as_json: bool) -> None:
    """Print the presets of a paper with their summaries, the default first.

    Raises:
        InputError: no preset is of that paper.
    """
    papers = presets_by_paper(registry.presets())
    if paper.lower() not in papers:
        if paper.lower() in NOT_BUILT:
            rule = f"a paper must be one that is built, and {NOT_BUILT[paper.lower()]} is not"
            raise InputError(rule, value=shown(paper), place="--paper")
        rule = f"a paper must be one of {', '.join(papers)}"
        raise InputError(rule, value=f"{shown(paper)}{did_you_mean(paper, papers)}", place="--paper")
    found = papers[paper.lower()]
    summaries = {each.preset: Profile.load(each.preset, registry=registry).summary for each in found}
    if as_json:
        rows = [{"preset": each.preset, "default": each.default, "summary": summaries[each.preset]} for each in found]
        typer.echo(json.dumps({"schema": "eunomia/paper@1", "paper": paper.lower(), "presets": rows}))
        return
    width = max(len(each.preset) for each in found)
    for each in found:
        default = " (default)" if each.default and len(found) > 1 else ""
        typer.echo(f"{each.preset:<{width}}  {summaries[each.preset]}{default}")


def _table(registry: Registry) -> list[str]:
    rows = [HEADERS, *(_row(item) for item in registry.all())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADERS) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]
    return [*lines, f"Profiles: {' '.join(registry.presets())}"]


def _row(item: Listed) -> tuple[str, ...]:
    status = item.status.value if item.error is None else f"{item.status.value}: {item.error}"
    stages = " ".join(stage.value for stage in item.stages) or "-"
    return item.found.name, item.found.version or "-", stages, item.found.origin, status


def _facts(item: Listed) -> dict[str, Any]:
    options_type = getattr(item.plugin, "options_type", None) if item.status is Status.OK else None
    options: dict[str, Any] = {}
    if options_type is not None:
        from eunomia.contract.options import describe

        options = describe(options_type)
    return {
        "name": item.found.name,
        "version": item.found.version or None,
        "stages": [stage.value for stage in item.stages],
        "from": item.found.origin,
        "status": item.status.value,
        "error": item.error,
        "options": options,
    }


def _annotated(lines: tuple[tuple[str, str], ...]) -> list[str]:
    width = min(60, max(len(text) for text, origin in lines if origin))
    return [f"{text.ljust(width)}  # {origin}" if origin else text for text, origin in lines]


def _resolved(profile: Profile) -> dict[str, Any]:
    lines = [{"text": text, "origin": origin or None} for text, origin in profile.origins()]
    return {"schema": "eunomia/profile@1", "profile": profile.name, "lines": lines}
