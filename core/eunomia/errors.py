"""Errors for users: the rule first, then the value that broke it, then its place."""


class EunomiaError(Exception):
    """An error with the ``rule``, the ``value`` that broke it and its ``place``.

    Its text reads ``lease must be a positive duration, but got "-5s" (policy.toml, [rounds].lease)``.

    Args:
        rule: the rule that was broken, as a sentence without a full stop.
        value: the value found instead, as text to print; None if there is none to show.
        place: file and key, option, hook or plugin; None if the message itself names the place.
    """

    exit_code = 3

    def __init__(self, rule: str, *, value: str | None = None, place: str | None = None) -> None:
        self.rule = rule
        self.value = value
        self.place = place
        super().__init__(rule, value, place)

    def __reduce__(self) -> tuple[object, ...]:
        """Make the error picklable whatever its constructor takes, so that worker processes can pass it on."""
        return _again, (type(self), self.args, vars(self).copy())

    def __str__(self) -> str:
        got = "" if self.value is None else f", but got {self.value}"
        where = "" if self.place is None else f" ({self.place})"
        return f"{self.rule}{got}{where}"


def _again(kind: type[EunomiaError], args: tuple[object, ...], fields: dict[str, object]) -> EunomiaError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


class InputError(EunomiaError):
    """Invalid input or usage; nothing was changed (exit code 2)."""

    exit_code = 2


class InputErrors(InputError):  # noqa: N818 - several errors
    """All errors found in one input, so that a user can correct them in one edit."""

    def __init__(self, errors: "list[InputError]") -> None:
        self.errors = errors
        super().__init__("; ".join(str(error) for error in errors))

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


class RunErrors(EunomiaError):  # noqa: N818 - several errors
    """Failed runs of a batch whose other runs succeeded, one line each (exit code 1)."""

    exit_code = 1

    def __init__(self, errors: "list[EunomiaError]") -> None:
        self.errors = errors
        super().__init__("; ".join(str(error) for error in errors))

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


class PluginError(EunomiaError):
    """A plugin broke the contract of its hooks; the error names the plugin."""


class UnreachableError(EunomiaError):
    """The arbiter is not reachable (exit code 4)."""

    exit_code = 4
