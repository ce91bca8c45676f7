"""Parses commands of the documents by the parsers of the commands themselves; none of them does its work.

Of ``eunomia``, values that its parser takes as text are checked too: policies, costs, clusters, settings, claims.
"""

import argparse
import importlib
import importlib.util
import os
import re
import sqlite3
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from unittest import mock
from urllib.parse import urlsplit

from typer.core import TyperCommand, TyperGroup

from documents.finding import ROOT, steps
from eunomia import EunomiaError, Profile
from eunomia.cli import run
from eunomia.journal.journal import Journal
from eunomia.platform.registry import default_registry
from eunomia_appmaster.app.app_file import AppFile
from eunomia_testbed.advise.flags import AdviseFlags
from eunomia_testbed.audit.violations import property_of
from eunomia_testbed.example import write_example
from eunomia_testbed.reproduce.command import ReproduceFlags, chosen
from eunomia_testbed.reproduce.papers import find_paper
from eunomia_testbed.spec.planning import plan_of
from eunomia_testbed.spec.reading import reader_options
from eunomia_testbed.spec.settings import filled
from eunomia_testbed.spec.simulation import SimulateFlags

Words = Sequence[str]


class NotParsedError(Exception):
    """A command's parser refuses it."""


def parse(text: str) -> None:
    """Parse a line of a shell in the current folder, which holds the files that the page has.

    Raises:
        NotParsedError: a command is unknown, or its parser refuses it.
    """
    for words in steps(text):
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if ">" in words[:-1]:
            words = words[: words.index(">")]
        program = words[0].rpartition("/")[2]
        if program not in PROGRAMS:
            raise NotParsedError(f"no parser is known of {program!r}")
        try:
            PROGRAMS[program](words[1:])
        except (EunomiaError, OSError, SystemExit, ValueError, sqlite3.Error) as error:
            raise NotParsedError(f"{program}: {error}") from error


# -- eunomia


def _eunomia(words: Words) -> None:
    """Parse by the command line's own parser, and check values that it takes as text."""
    with mock.patch.dict(os.environ):
        default_registry.cache_clear()  # it holds the plugins of an earlier --plugin-path
        code, found, said = parsed(words)
        if code != 0 or found is None:
            raise NotParsedError(f"eunomia: {said or f'exit code {code}'}")
        name, given = found
        try:
            CHECKS.get(name, lambda values: None)(given)
        finally:
            default_registry.cache_clear()


def parsed(words: Words) -> tuple[int, tuple[str, dict[str, Any]] | None, str]:
    """Parse words behind ``eunomia``; the function behind the command is not called.

    Returns:
        The exit code; the command with its parameters, None if they are refused; the error.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    said: list[str] = []

    def keep(command: TyperCommand | TyperGroup, context: Any) -> int:
        found.append((command.name or "", dict(context.params)))
        return 0

    own = TyperGroup.invoke

    def go_on(group: TyperGroup, context: Any) -> Any:
        """Keep a group that is a command by itself, such as ``eunomia nodes``, or go on with its command."""
        alone = group.invoke_without_command and not (context._protected_args or context.args)
        return keep(group, context) if alone else own(group, context)

    with (
        mock.patch.object(TyperCommand, "invoke", keep),
        mock.patch.object(TyperGroup, "invoke", go_on),
        mock.patch("eunomia.cli._say", lambda errors, as_json: said.extend(map(str, errors))),
    ):
        code = run(list(words))
    return code, found[0] if found else None, "; ".join(said)


def _advise(given: Mapping[str, Any]) -> None:
    AdviseFlags(**given).check()
    _simulate({**given, "budget": None, "policies": given.get("policies") or ["srtf"]})


def _simulate(given: Mapping[str, Any]) -> None:
    """Check everything; of a trace that is not here all but its own options, on the example's trace instead."""
    spec = SimulateFlags(**{name: value for name, value in given.items() if name in SimulateFlags.model_fields})
    reader = [text for text in spec.settings if text.startswith("trace.")]
    reader_options([text.removeprefix("trace.") for text in reader])
    instead: dict[str, object] = {}
    if spec.trace is not None and not Path(str(spec.trace)).exists():
        write_example()
        settings = tuple(text for text in spec.settings if text not in reader)
        unknown = () if spec.speeds == "equal" else spec.unknown_models
        instead = {"trace": "example.csv", "format": None, "settings": settings, "unknown_models": unknown}
        if spec.speeds not in ("equal", "analytic"):
            instead["speeds"] = "analytic"
        instead["throughputs"] = None
        if "amounts" in (spec.know or "").split(","):  # speeds by CPUs and memory are of measured files alone
            instead["know"] = ",".join(fact for fact in str(spec.know).split(",") if fact != "amounts") or None
    if re.fullmatch(r"[\w.-]+", spec.cluster or "") and not Path(spec.cluster or "").exists():
        instead["cluster"] = "4x8 V100"  # a list of machines that is not here
    plan_of(spec.model_copy(update=instead))


def _serve(given: Mapping[str, Any]) -> None:
    Profile.load(given.get("policy") or "default", settings=given.get("settings") or ())


def _submit(given: Mapping[str, Any]) -> None:
    if given.get("more_trials") is None:
        path = Path(given["file"])
        AppFile.parse(path.read_text(encoding="utf-8"), place=path.name, folder=path.parent.absolute())


def _reproduce(given: Mapping[str, Any]) -> None:
    flags = ReproduceFlags(**given)
    paper = find_paper(flags.paper)
    chosen(paper.claims(filled(paper.grid, flags.settings, "--set")), flags.only)


def _audit(given: Mapping[str, Any]) -> None:
    for name in given.get("profiles") or ():
        Profile.load(name, settings=given.get("settings") or ())
    for name in given.get("only") or ():
        property_of(name, "--only")


CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    "advise": _advise,
    "audit": _audit,
    "demo": _serve,
    "reproduce": _reproduce,
    "serve": _serve,
    "simulate": _simulate,
    "submit": _submit,
}
"""By command of ``eunomia``, the check of values that its parser takes as text."""


# -- other programs


def _python(words: Words) -> None:
    """Parse ``python -m MODULE ...`` by the module's own parser."""
    if len(words) < 2 or words[0] != "-m":
        raise NotParsedError("python must have -m MODULE")
    module = importlib.import_module(words[1])
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{words[1]}.__main__")
    accepted = RuntimeError("accepted")
    own = argparse.ArgumentParser.parse_args

    def accept(parser: argparse.ArgumentParser, *given: Any, **more: Any) -> argparse.Namespace:
        own(parser, *given, **more)
        raise accepted

    with mock.patch.object(argparse.ArgumentParser, "parse_args", accept):
        try:
            module.main(list(words[2:]))
        except RuntimeError as error:
            if error is not accepted:
                raise
            return
    raise NotParsedError(f"{words[1]} has no parser of arguments")


def _pip(words: Words) -> None:
    names = [word for word in words[1:] if not word.startswith("-")]
    if importlib.util.find_spec("pip") is not None:  # on Debian an environment may be made by the pip outside of it
        parsers = importlib.import_module("pip._internal.commands")
        if words[0] not in parsers.commands_dict:
            raise NotParsedError(f"pip: no command {words[0]}")
        _, names = parsers.create_command(words[0]).parse_args(list(words[1:]))
    known = {_project(file)["name"] for file in (ROOT / "pyproject.toml", *ROOT.glob("docs/examples/*/pyproject.toml"))}
    for name in names:
        place, _, extras = name.partition("[")
        os.environ.pop("EUNOMIA_PLUGIN_PATH", None)
        if words[0] != "uninstall":
            if place != ".":  # commands that follow find its plugin
                os.environ["EUNOMIA_PLUGIN_PATH"] = str(ROOT / "docs" / "examples" / place / f"{Path(place).name}.py")
            file = (ROOT if place == "." else ROOT / "docs" / "examples" / place) / "pyproject.toml"
            unknown = set(filter(None, extras.rstrip("]").split(","))) - set(_project(file)["optional-dependencies"])
        else:
            unknown = {name} - known
        if unknown:
            raise NotParsedError(f"pip: {', '.join(unknown)} is in no pyproject.toml")


def _project(file: Path) -> dict[str, Any]:
    project: dict[str, Any] = {"optional-dependencies": {}} | tomllib.loads(file.read_text())["project"]
    return project


def _make(words: Words) -> None:
    made = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True)
    if made.returncode != 0:
        raise NotParsedError(f"make: {made.stderr.strip()}")


def _sqlite3(words: Words) -> None:
    """Parse SQL by SQLite, against the tables of a journal."""
    parser = argparse.ArgumentParser(prog="sqlite3", prefix_chars="-")
    parser.add_argument("-readonly", action="store_true")
    parser.add_argument("file", choices=["journal.sqlite"])
    parser.add_argument("command")
    command = parser.parse_args(words).command
    if command.startswith("."):
        if re.fullmatch(r"\.backup '[\w./-]+'", command) is None:
            raise NotParsedError(f"sqlite3: {command}")
        return
    path = Path("parsed.sqlite").absolute()
    Journal.open(path, durable=False).close()
    with closing(sqlite3.connect(path)) as tables:
        tables.execute(f"EXPLAIN {command}")


def _curl(words: Words) -> None:
    parser = argparse.ArgumentParser(prog="curl")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("url")
    path = urlsplit(parser.parse_args(words).url).path
    served = (ROOT / "appmaster" / "eunomia_appmaster" / "service" / "metrics_server.py").read_text()
    if f'"{path}"' not in served:
        raise NotParsedError(f"curl: nothing is served at {path}")


def _cd(words: Words) -> None:
    (folder,) = words
    if not (ROOT / folder).is_dir():
        raise NotParsedError(f"cd: {folder} is no folder of the repository")


def _export(words: Words) -> None:
    sources = "".join(file.read_text() for file in (ROOT / "appmaster" / "eunomia_appmaster").rglob("*.py"))
    for word in words:
        name = word.partition("=")[0]
        if f'"{name}"' not in sources:
            raise NotParsedError(f"export: no code reads {name}")


def _kubectl(words: Words) -> None:
    """Parse verb, and options that the pages use; what ``exec`` runs in a pod, by its own parser."""
    options = argparse.ArgumentParser(prog="kubectl", add_help=False)
    options.add_argument("-n", dest="namespace")
    verbs = options.add_subparsers(required=True)
    for verb in ("create", "logs", "cp"):
        verbs.add_parser(verb).add_argument("names", nargs="+")
    verbs.choices["create"].add_argument("--from-file")
    verbs.choices["logs"].add_argument("-c", dest="container")
    apply, delete = verbs.add_parser("apply"), verbs.add_parser("delete")
    apply.add_argument("-f", required=True)
    apply.add_argument("--dry-run", choices=["server", "client"])
    get = verbs.add_parser("get")
    for verb_of_kinds in (delete, get):
        verb_of_kinds.add_argument("kinds")
        verb_of_kinds.add_argument("name", nargs="?")
        verb_of_kinds.add_argument("-l", dest="labels")
    verbs.add_parser("exec").add_argument("pod")
    own, inner = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, ())
    given = options.parse_args(list(own))
    if "delete" in own and not (given.name or given.labels):
        raise NotParsedError("kubectl delete: neither a name nor labels")
    if inner:
        code, found, said = parsed(inner[1:])
        if inner[0] != "eunomia" or code != 0 or found is None:
            raise NotParsedError(f"kubectl exec: {said or inner[0]}")


def _ray(words: Words) -> None:
    """Parse ``ray start`` with the options that the pages use."""
    options = argparse.ArgumentParser(prog="ray", add_help=False)
    start = options.add_subparsers(required=True).add_parser("start")
    start.add_argument("--head", action="store_true")
    start.add_argument("--num-cpus", type=int)
    start.add_argument("--num-gpus", type=int)
    start.add_argument("--port", type=int)
    for name in ("--address", "--node-ip-address", "--temp-dir"):
        start.add_argument(name)
    options.parse_args(list(words))


def _docker(words: Words) -> None:
    options = argparse.ArgumentParser(prog="docker", add_help=False)
    verbs = options.add_subparsers(required=True, dest="verb")
    build = verbs.add_parser("build")
    build.add_argument("-f", dest="file", required=True)
    build.add_argument("-t", dest="tag", required=True)
    build.add_argument("folder", choices=["."])
    verbs.add_parser("push").add_argument("tag")
    given = options.parse_args(list(words))
    if given.verb == "build" and not (ROOT / given.file).is_file():
        raise NotParsedError(f"no file {given.file}")


def _rm(words: Words) -> None:
    argparse.ArgumentParser(prog="rm").parse_args([word for word in words if word.startswith("-")])


PROGRAMS: Final[Mapping[str, Callable[[Words], None]]] = {
    "cd": _cd,
    "curl": _curl,
    "docker": _docker,
    "eunomia": _eunomia,
    "export": _export,
    "kubectl": _kubectl,
    "make": _make,
    "pip": _pip,
    "python": _python,
    "ray": _ray,
    "rm": _rm,
    "sqlite3": _sqlite3,
}
"""By program, its parser."""
