"""Errors that a user meets: the rule first, then the value that broke it, then where it stood."""


class EunomiaError(Exception):
    """A clear error: ``rule``, the offending ``value`` and its ``place``.

    Its text reads ``lease must be a positive duration, but got "-5s" (policy.toml, [rounds].lease)``.

    Args:
        rule: what must hold, as a sentence without a full stop.
        value: what was found instead, already fit to print; None where there is nothing to show.
        place: file and key, option, hook or plugin; None where there is no better place than the message.
    """

    exit_code = 3

    def __init__(self, rule: str, *, value: str | None = None, place: str | None = None) -> None:
        self.rule = rule
        self.value = value
        self.place = place
        super().__init__(rule, value, place)

    def __str__(self) -> str:
        got = "" if self.value is None else f", but got {self.value}"
        where = "" if self.place is None else f" ({self.place})"
        return f"{self.rule}{got}{where}"


class InputError(EunomiaError):
    """Bad input or usage: nothing was changed (exit code 2)."""

    exit_code = 2


class InputErrors(InputError):  # noqa: N818 - several errors
    """All errors of one input together, so that they can be mended in one go."""

    def __init__(self, errors: "list[InputError]") -> None:
        self.errors = errors
        super().__init__("; ".join(str(error) for error in errors))

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


class RunErrors(EunomiaError):  # noqa: N818 - several errors
    """Runs that failed while the others were done: a line each (exit code 1)."""

    exit_code = 1

    def __init__(self, errors: "list[EunomiaError]") -> None:
        self.errors = errors
        super().__init__("; ".join(str(error) for error in errors))

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


class PluginError(EunomiaError):
    """A plugin broke the contract of its hooks; names the plugin."""


class UnreachableError(EunomiaError):
    """The arbiter is not reachable, or refused the token (exit code 4)."""

    exit_code = 4
