"""``eunomia audit``: tests the properties that a policy promises its users, and searches for profitable lies."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel, BeforeValidator, ConfigDict

from eunomia.errors import InputError
from eunomia.own_stdout import own_stdout
from eunomia_appmaster.commands.model_flags import FlagType, with_flags

if TYPE_CHECKING:
    from eunomia.platform.profiles import Profile
    from eunomia_testbed.audit.full import FullAudit
    from eunomia_testbed.audit.violations import Property

OK, ANSWER_IS_NO = 0, 1
SAME_WITHIN = 1e-6
"""Largest difference in size at which a replayed violation counts as equal to the stored one."""
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda given: given or ()), FlagType(list[str] | None)]


class AuditFlags(BaseModel):
    """Flags of ``eunomia audit``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profiles: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda given: given or ()),
        FlagType(list[str] | None),
        typer.Argument(metavar="PROFILE...", help="Presets, profile files or plugins.", show_default=False),
    ] = ()
    workload: Annotated[str, typer.Option(help="Instances: mixed, ordered, models, corners, few_jobs.")] = "mixed"
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="All randomness follows from it.")] = 0
    instances: Annotated[int, typer.Option(min=1, help="How many are judged.")] = 100
    simulated: Annotated[int, typer.Option(min=0, help="Instances judged over simulated rounds.")] = 6
    within: Annotated[str, typer.Option(metavar="60s", help="CPU time a profile, all of it.")] = "60s"
    settings: Annotated[Texts, typer.Option("--set", metavar="KEY=VALUE", help="Another value in each profile.")] = ()
    out: Annotated[Path | None, typer.Option(help="The folder to leave; a new one in ./eunomia-out by default.")] = None
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Judge a stored counterexample again; exit 1 if it differs.")
    ] = None
    only: Annotated[Texts, typer.Option("--only", metavar="PROPERTY", help="Judge these properties alone.")] = ()
    fail_on: Annotated[
        Texts, typer.Option("--fail-on", metavar="PROPERTY", help="Exit 1 if this property is violated.")
    ] = ()
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show what happens.")] = True
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the folder's path alone.")] = False


@with_flags(AuditFlags)
def audit(flags: AuditFlags) -> int:
    """Test the properties that a policy claims for its users, and search for lies that pay."""
    if flags.replay is not None:
        return _replay(flags.replay, flags)
    from eunomia.units import parse_duration
    from eunomia_testbed.audit.generators import chosen_generators
    from eunomia_testbed.audit.violations import property_of

    if not flags.profiles:
        raise InputError("a profile must be named, or a file to --replay", value="none", place="PROFILE")
    chosen_generators(flags.workload)
    kinds = [property_of(name, "--only") for name in flags.only]
    failing = [property_of(name, "--fail-on") for name in flags.fail_on]
    seconds = parse_duration(flags.within, name="--within", place="--within", zero=False)
    folder = _folder(flags)
    with own_stdout():
        profiles = _profiles(flags)
        made = [_audited(profile, flags, seconds, [*kinds, *failing] if kinds else []) for profile in profiles]
    _write(made, folder, flags)
    violated = any(tally.violated for each in made for tally in each.tallies if tally.kind in failing)
    return ANSWER_IS_NO if violated else OK


def _profiles(flags: AuditFlags) -> "list[Profile]":
    """Load and check all profiles, before the first one is audited.

    Raises:
        InputErrors: all errors of one profile.
        InputError: a profile is named twice.
    """
    from eunomia.platform.profiles import Profile

    twice = {name for name in flags.profiles if flags.profiles.count(name) > 1}
    if twice:
        raise InputError("each profile must be named once", value=", ".join(sorted(twice)), place="PROFILE")
    return [Profile.load(name, settings=flags.settings, flag="PROFILE") for name in flags.profiles]


def _folder(flags: AuditFlags) -> Path:
    from eunomia_testbed.results.folder import new_folder_name

    folder = flags.out or Path("eunomia-out") / new_folder_name("audit", datetime.now(UTC))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("--out must be a new folder", value=str(folder), place="--out")
    return folder


def _audited(profile: "Profile", flags: AuditFlags, seconds: float, kinds: "Sequence[Property]") -> "FullAudit":
    from eunomia_testbed.audit.full import full_audit
    from eunomia_testbed.audit.policy import AuditedPolicy
    from eunomia_testbed.audit.violations import Property

    judged = [kind for kind in Property if not kinds or kind in kinds]
    shows = flags.progress and not flags.quiet and sys.stderr.isatty()

    def said(done: int) -> None:
        if shows:
            sys.stderr.write(f"\r{profile.name}: {done} of {flags.instances} instances ")
            sys.stderr.write("\n" if done == flags.instances else "")
            sys.stderr.flush()

    policy = AuditedPolicy(profile, seed=flags.seed)
    return full_audit(
        policy,
        flags.workload,
        counts=(flags.instances, flags.simulated),
        seconds=seconds,
        kinds=judged,
        said=said,
    )


def _write(audits: "Sequence[FullAudit]", folder: Path, flags: AuditFlags) -> None:
    """Write the counterexamples, ``audit.json`` and ``report.html``, and print the requested output."""
    from eunomia_testbed.audit.page import page
    from eunomia_testbed.audit.table import plain_audit, screen_lines

    for made, name in zip(audits, flags.profiles, strict=True):
        _store(made, name, folder, flags)
    plain = {
        "schema": "eunomia/audit@1",
        "out": str(folder),
        "workload": flags.workload,
        "profiles": [plain_audit(made) for made in audits],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit.json").write_text(json.dumps(plain, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    report = folder / "report.html"
    report.write_text(page(audits, "Audit of policies"), encoding="utf-8")
    if flags.as_json:
        typer.echo(json.dumps(plain, ensure_ascii=False))
    elif flags.quiet:
        typer.echo(folder)
    else:
        lines = [line for made in audits for line in [*screen_lines(made), ""]]
        typer.echo("\n".join([*lines, f"Report   {report}"]))


def _store(made: "FullAudit", name: str, folder: Path, flags: AuditFlags) -> None:
    """Write the smallest counterexample of each property to a file."""
    from eunomia_testbed.audit.files import Stored, write
    from eunomia_testbed.audit.table import file_name

    for tally in made.tallies:
        if tally.smallest is not None:
            path = folder / made.name / file_name(tally.smallest)
            write(path, Stored(profile=name, settings=flags.settings, found=tally.smallest))


def _replay(path: Path, flags: AuditFlags) -> int:
    """Judge a stored counterexample again, with its own profile or a given one, and return the exit code."""
    from eunomia.platform.profiles import Profile
    from eunomia_testbed.audit.files import read
    from eunomia_testbed.audit.full import replayed
    from eunomia_testbed.audit.policy import AuditedPolicy
    from eunomia_testbed.audit.wording import sentence, size_text

    if len(flags.profiles) > 1:
        raise InputError("--replay must have at most one profile", value=str(len(flags.profiles)), place="PROFILE")
    stored = read(path)
    name = flags.profiles[0] if flags.profiles else stored.profile
    profile = Profile.load(name, settings=(*stored.settings, *flags.settings), flag="PROFILE")
    policy = AuditedPolicy(profile, seed=stored.found.seed)
    with own_stdout():
        again = replayed(policy, stored.found)
    size = 0.0 if again is None else again.size
    same = abs(size - stored.found.size) <= SAME_WITHIN * max(1.0, abs(stored.found.size))
    kind = stored.found.kind
    stated = f"stored {size_text(kind, stored.found.size)}, again {size_text(kind, size)}"
    facts = {"property": kind.value, "profile": name, "stored": stored.found.size, "again": size, "same": same}
    if flags.as_json:
        typer.echo(json.dumps({"schema": "eunomia/audit-replay@1", **facts}, ensure_ascii=False))
    else:
        verdict = "the same" if same else "not the same"
        lines = [] if again is None else [sentence(again)]
        typer.echo("\n".join([f"{name}, {kind.label}: {stated}, {verdict}", *lines]))
    return OK if same else ANSWER_IS_NO
