"""Commands whose flags stand in a dataclass: Typer reads flags off a signature, and this makes the signature."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

S = TypeVar("S")


def with_flags(spec: type[S]) -> Callable[[Callable[[S], int]], Callable[..., int]]:
    """Make a command of a function that takes one dataclass of flags.

    Args:
        spec: a dataclass; each field's annotation is ``Annotated[type, typer.Option(...)]``, its default the flag's.

    Returns:
        A decorator. The command takes the fields as keywords and calls the function with a ``spec``.
    """
    # Callers outside of Typer may leave out flags that have defaults: the dataclass fills them in.
    hints = get_type_hints(spec, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(spec)  # type: ignore[arg-type]
    ]

    def command_of(run: Callable[[S], int]) -> Callable[..., int]:
        def command(**given: Any) -> int:
            return run(spec(**given))

        command.__name__, command.__doc__, command.__module__ = run.__name__, run.__doc__, run.__module__
        command.__annotations__ = {**hints, "return": int}
        command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        return command

    return command_of
