"""The limit on own ends of app masters, beyond which their apps are suspended."""

from typing import Final

from eunomia.model.shapes import value


@value
class OwnEndsLimit:
    """How many own ends an app master may have.

    Attributes:
        ends: the most in the window; the next one suspends the app.
        seconds: length of the window, and of an attempt after which a suspension is over.
    """

    ends: int = 4
    seconds: float = 600.0


DEFAULT_LIMIT: Final = OwnEndsLimit()
