"""Commands whose flags are the fields of a pydantic model: builds the signature from which Typer reads flags."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.models import ParameterInfo

S = TypeVar("S", bound=BaseModel)
_SAME: Final = inspect.Parameter.empty


class FlagType(NamedTuple):
    """The type and default of a command-line flag whose field accepts additional types in Python."""

    kind: Any
    default: Any = None


def with_flags(spec: type[S]) -> Callable[[Callable[[S], int]], Callable[..., int]]:
    """Turn a function of one pydantic model into a command with a flag per field.

    Args:
        spec: a pydantic model. A field with ``typer.Option(...)`` or ``typer.Argument(...)`` among its annotations is a
            flag, its default the flag's; ``FlagType`` gives the flag another type. Other fields can be set only from
            Python.

    Returns:
        A decorator. The command takes the flags as keywords and calls the function with a ``spec``.
    """
    # Callers outside of Typer may leave out flags that have defaults: the model fills them in.
    parameters = [_parameter(name, field) for name, field in spec.model_fields.items() if _flag_of(field) is not None]

    def command_of(run: Callable[[S], int]) -> Callable[..., int]:
        def command(**given: Any) -> int:
            return run(spec(**given))

        command.__name__, command.__doc__, command.__module__ = run.__name__, run.__doc__, run.__module__
        command.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": int}
        command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        return command

    return command_of


def flag_name(spec: type[BaseModel], field: str) -> str:
    """Return the longest name of a field's flag, such as ``--policy``; an argument is called by its field's name."""
    flag = _flag_of(spec.model_fields[field])
    if flag is None or isinstance(flag, typer.models.ArgumentInfo):
        return field
    names = [*([flag.default] if isinstance(flag.default, str) else []), *(flag.param_decls or ())]
    return max(names, key=len) if names else f"--{field.replace('_', '-')}"


def _flag_of(field: FieldInfo) -> ParameterInfo | None:
    return next((each for each in field.metadata if isinstance(each, ParameterInfo)), None)


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    own = next((each for each in field.metadata if isinstance(each, FlagType)), None)
    default = _SAME if field.default is PydanticUndefined else field.default
    kind, default = (field.annotation, default) if own is None else (own.kind, own.default)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, _flag_of(field)]
    )
