"""The limit on ends of app masters that count against them, above which their apps are suspended."""

from typing import Final

from eunomia.model.shapes import value


@value
class OwnEndsLimit:
    """How often an app master may end by itself.

    Attributes:
        ends: most such ends within the window; one more suspends the app.
        seconds: length of the window; an attempt of this length also ends a series of suspensions.
    """

    ends: int = 4
    seconds: float = 600.0


DEFAULT_LIMIT: Final = OwnEndsLimit()
