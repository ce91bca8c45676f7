"""The command line: find the command, call it, and report an error as one line with an exit code.

Exit codes: 0 success; 1 the command ran and the answer is negative; 2 invalid input or usage; 3 an internal error;
4 the arbiter is not reachable; 130 Ctrl-C.
"""

import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from eunomia import __version__
from eunomia.commands import OF_EXTRAS, Command, all_commands, built_in
from eunomia.errors import EunomiaError, InputError, InputErrors, RunErrors
from eunomia.extras import lacking, require
from eunomia.words import did_you_mean

INTERRUPTED = 130
FAULT = 3

_UsageProblem: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Base class of usage errors in the click that Typer uses, which is either its own copy or the installed one."""

_SWITCHES = {
    "--no-plugins": "EUNOMIA_NO_PLUGINS",
    "--trace-plugins": "EUNOMIA_TRACE_PLUGINS",
    "--strict-plugins": "EUNOMIA_STRICT_PLUGINS",
}

EPILOG = (
    "Everywhere: --plugin-path FILE adds a plugin's file, --no-plugins leaves installed plugins and commands out, "
    "--trace-plugins logs every call of a stage, --strict-plugins turns faults of plugins into failures. "
    "Exit codes: 0 done; 1 the answer is no; 2 bad input; 3 a fault of Eunomia's own; 4 arbiter not reachable; "
    "130 Ctrl-C."
)


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: the arguments after ``eunomia``.
    """
    as_json = "--json" in arguments
    try:
        rest = take_plugin_flags(arguments)
        answer = _root().main(args=rest, prog_name="eunomia", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except EunomiaError as error:
        _say(error.errors if isinstance(error, InputErrors | RunErrors) else [error], as_json)
        return error.exit_code
    except _UsageProblem as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message(), err=True)
            return int(error.exit_code)
        _say([InputError(error.format_message().strip().rstrip("."))], as_json)
        return int(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed the pipe: nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        missing = lacking(error, of="this") if isinstance(error, ImportError) else None
        if missing is not None:
            _say([missing], as_json)
            return missing.exit_code
        path = _report(error, arguments)
        text = f"Eunomia met a fault of its own: {type(error).__name__}: {error}; please send {path}"
        _say([EunomiaError(text)], as_json)
        return FAULT


def take_plugin_flags(arguments: Sequence[str]) -> list[str]:
    """Remove the plugin flags from the arguments before ``--``, and return the remaining arguments.

    The flags are passed on in environment variables, to this process and to its children.

    Raises:
        InputError: ``--plugin-path`` is given without a file.
    """
    rest: list[str] = []
    paths: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _SWITCHES:
            os.environ[_SWITCHES[word]] = "1"
        elif word == "--plugin-path":
            path = next(words, None)
            if path is None:
                raise InputError("--plugin-path must name a file", value="nothing")
            paths.append(path)
        elif word.startswith("--plugin-path="):
            paths.append(word.partition("=")[2])
        else:
            rest.append(word)
    if paths:
        before = os.environ.get("EUNOMIA_PLUGIN_PATH")
        whole = [str(Path(path).absolute()) for path in paths]
        os.environ["EUNOMIA_PLUGIN_PATH"] = os.pathsep.join([*whole, *([before] if before else [])])
    return rest


class _Lazy(TyperGroup):
    """A command group that imports only the command that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the command table."""
        return list(_commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command and derive its parameters from its annotations."""
        loaded = (built_in(cmd_name) or _installed(cmd_name)).load()
        if not isinstance(loaded, typer.Typer):
            function = loaded
            loaded = _app()
            loaded.command(name=cmd_name)(function)
        command = typer.main.get_command(loaded)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and help lines of all commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.help) for command in _commands().values()])


def _installed(name: str) -> Command:
    """Return the command of this name from an installed package; raise ``InputError`` if there is none."""
    known = _commands()
    if name not in known:
        if name in OF_EXTRAS:
            require([OF_EXTRAS[name]], of=f"eunomia {name}")
        hint = did_you_mean(name, known)
        raise InputError(f"a command must be one of {', '.join(known)}", value=f'"{name}"{hint}')
    return known[name]


def _commands() -> Mapping[str, Command]:
    return all_commands(installed=os.environ.get("EUNOMIA_NO_PLUGINS", "") in ("", "0"))


def _app(**settings: Any) -> typer.Typer:
    # rich's markup would cost its import on every --help.
    return typer.Typer(add_completion=False, rich_markup_mode=None, **settings)


def _root() -> Any:
    root = _app(cls=_Lazy, no_args_is_help=True, epilog=EPILOG)
    root.callback()(eunomia)
    return typer.main.get_command(root)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eunomia {__version__}")
        raise typer.Exit


def eunomia(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Fair, efficient and elastic sharing of GPU clusters among machine-learning applications."""


def _say(errors: Sequence[EunomiaError], as_json: bool) -> None:
    if as_json:
        rows = [{"rule": error.rule, "value": error.value, "place": error.place} for error in errors]
        typer.echo(json.dumps({"schema": "eunomia/error@1", "errors": rows}), err=True)
        return
    for error in errors:
        typer.echo(f"error: {error}", err=True)


def _report(error: BaseException, arguments: Sequence[str]) -> Path:
    """Write an internal error with its traceback to a file for a bug report, and return the file's path."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    name = f"fault-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    text = "\n".join(
        [
            f"eunomia {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command: eunomia {' '.join(arguments)}",
            "",
            *traceback.format_exception(error),
        ]
    )
    for folder in (Path(home) / "eunomia" / "faults", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return folder / name
    return Path(os.devnull)


if __name__ == "__main__":
    main()
