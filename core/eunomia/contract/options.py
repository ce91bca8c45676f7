"""Plugin options: typed, documented by docstrings, and checked when a profile is loaded."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic_core import ErrorDetails

from eunomia.errors import InputError, InputErrors
from eunomia.units import Seconds, parse_duration
from eunomia.words import did_you_mean, exact_duration, shown


class PluginOptions(BaseModel):
    """Base class of plugin options: frozen, rejects unknown options; the docstring of an option is its description."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, arbitrary_types_allowed=True)


def _duration(given: object) -> object:
    """Parse a duration: text needs a unit; a number, given in code, is in seconds."""
    if isinstance(given, str):
        try:
            return float(parse_duration(given, name="it", zero=True))
        except InputError as error:
            raise ValueError(error.rule.removeprefix("it ")) from error
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError(_DURATION_RULE)
    return float(given)


_DURATION_RULE = 'must be a duration with a unit, such as "10m"'

Duration = Annotated[
    Seconds,
    BeforeValidator(_duration),
    PlainSerializer(exact_duration, return_type=str, when_used="json"),
    Field(ge=0.0),
]
"""A duration: a number of seconds in code, or text such as ``"10m"`` in a profile."""

Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
"""A fraction from 0 to 1."""


def make_options(
    kind: type[PluginOptions],
    given: Mapping[str, object],
    *,
    place: Callable[[tuple[str, ...]], str],
    numbers_are_seconds: bool = False,
) -> PluginOptions:
    """Check the options that a profile gives to a plugin.

    Args:
        kind: the type of the plugin's options.
        given: values by option name, as read from TOML.
        place: returns file and key of an option, given its path within the options.
        numbers_are_seconds: whether a duration may be a plain number of seconds, as in code, without a unit.

    Raises:
        InputErrors: options are unknown, missing or out of bounds; all of them are listed.
    """
    bare = [] if numbers_are_seconds else _without_unit(kind, given)
    if bare:
        raise InputErrors(
            [InputError(f"{name} {_DURATION_RULE}", value=shown(given[name]), place=place((name,))) for name in bare]
        )
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        names = list(kind.model_fields)
        raise InputErrors([_translated(item, kind, names, place) for item in error.errors()]) from error


def _without_unit(kind: type[PluginOptions], given: Mapping[str, object]) -> list[str]:
    """Return the names of durations given as plain numbers, which only code may do."""
    return [
        name
        for name, field in kind.model_fields.items()
        if isinstance(given.get(name), int | float)
        and any(isinstance(each, BeforeValidator) and each.func is _duration for each in field.metadata)
    ]


def _translated(
    item: ErrorDetails, kind: type[PluginOptions], names: list[str], place: Callable[[tuple[str, ...]], str]
) -> InputError:
    # Positions in a list are not keys of the profile: the place ends at the list.
    location = tuple(part for part in item["loc"] if isinstance(part, str))
    where, path = place(location), ".".join(location)
    if item["type"] == "extra_forbidden":
        hint = did_you_mean(location[-1], names)
        known = "" if hint else f"; it has {', '.join(names) or 'none'}"
        return InputError("an option must be one that the plugin has", value=f'"{path}"{hint}{known}', place=where)
    if item["type"] == "missing":
        return InputError(f"{path} must be given", place=where)
    # A check of several options has no place of its own: its message names the options.
    return InputError(f"{path} {_rule(item, kind)}".strip(), value=shown(item["input"]) if path else None, place=where)


_TYPES = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
}
_BOUNDS = {"greater_than_equal", "greater_than", "less_than_equal", "less_than"}


def _rule(item: ErrorDetails, kind: type[PluginOptions]) -> str:
    context: dict[str, Any] = item.get("ctx") or {}
    if item["type"] in _TYPES:
        return _TYPES[item["type"]]
    if item["type"] == "too_short":
        return f"must have at least {context['min_length']} items"
    if item["type"] == "too_long":
        return f"must have at most {context['max_length']} items"
    if item["type"] == "literal_error":
        return f"must be {context['expected'].replace(chr(39), chr(34))}"
    if item["type"] == "value_error":
        message = str(context.get("error", item["msg"]))
        # A check of several options states a whole rule.
        return message if message.startswith("must") or not item["loc"] else f"must be valid: {message}"
    if item["type"] in _BOUNDS:
        return f"must be {_bounds(kind, item) or item['msg'].removeprefix('Input should be ')}"
    return "must be " + item["msg"].removeprefix("Input should be ").removeprefix("a valid ")


def _bounds(kind: type[PluginOptions], item: ErrorDetails) -> str:
    """Return an option's bounds in words, such as ``between 0 and 1`` or ``at least 1``."""
    import annotated_types as at

    field = kind.model_fields.get(str(item["loc"][0])) if len(item["loc"]) == 1 else None
    words: dict[str, float] = {}
    for bound in field.metadata if field else []:
        for sort, attribute in ((at.Ge, "ge"), (at.Gt, "gt"), (at.Le, "le"), (at.Lt, "lt")):
            if isinstance(bound, sort):
                words[attribute] = getattr(bound, attribute)
    if set(words) == {"ge", "le"}:
        return f"between {words['ge']:g} and {words['le']:g}"
    text = {"ge": "at least {:g}", "gt": "greater than {:g}", "le": "at most {:g}", "lt": "less than {:g}"}
    if words.get("gt", -math.inf) >= words.get("ge", -math.inf):
        words.pop("ge", None)
    return " and ".join(text[key].format(words[key]) for key in ("ge", "gt", "le", "lt") if key in words)


def describe(kind: type[PluginOptions]) -> dict[str, dict[str, object]]:
    """Return the type or choices, bounds, default and description of each option, as plain values for ``--json``."""
    schema = kind.model_json_schema(mode="serialization")
    properties: dict[str, dict[str, object]] = schema.get("properties", {})
    said = descriptions(kind)
    return {
        name: {key: item for key, item in entry.items() if key not in ("title", "$ref")}
        | ({"description": said[name]} if name in said else {})
        for name, entry in properties.items()
    }


def descriptions(kind: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each option by name; this reads the source file at each call."""
    import ast
    import inspect
    import textwrap

    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):  # the source is not available, such as in an interactive session
            continue
        lines = body.body if isinstance(body, ast.ClassDef) else []
        for line, after in itertools.pairwise(lines):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(after, ast.Expr):
                text = after.value.value if isinstance(after.value, ast.Constant) else None
                if isinstance(text, str):
                    found[line.target.id] = inspect.cleandoc(text)
    explicit = {name: field.description for name, field in kind.model_fields.items() if field.description}
    return found | explicit
