"""Records the plugin and the hook of each call, before the call and after each step."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping

from eunomia.contract.stages import CallNote
from eunomia.units import Stage
from eunomia_testbed.calls.page import CallPage


class CallNotes:
    """A recorder of the current plugin call on a page.

    Attributes:
        numbers: ``CallPage.numbers`` of the page; the first is 0 when there is no current call.

    Args:
        place: policy and seed as text, for errors.
        page: the page; None: a page in this process's memory.
    """

    def __init__(self, place: str = "", page: CallPage | None = None) -> None:
        self.page = CallPage() if page is None else page
        self.page.begin(place)
        self.numbers = self.page.numbers
        self._next = itertools.count(-1, -1).__next__
        """Returns the next number, a negative one, for a call outside a round's stages; stages have positive ones."""
        self._codes: dict[tuple[str, str], int] = {}

    def of_rounds(self, names: Mapping[Stage, str]) -> CallNote:
        """Return the ``CallNote`` on which an arbiter records each call of a stage before the call starts.

        Args:
            names: the plugins' names by stage, which are written on the page before the first call.
        """
        codes = _Codes(self._code)
        for stage, plugin in names.items():
            codes[plugin, stage] = self._code(plugin, stage.value)
        return CallNote(self.numbers, codes)

    @contextlib.contextmanager
    def asking(self, plugin: str, what: str) -> Iterator[None]:
        """Record a call outside the stages as the current one within the block; ``what`` is the purpose of the call."""
        self.numbers[1] = self._code(plugin, what)
        self.numbers[0] = self._next()
        try:
            yield
        finally:
            self.numbers[0] = 0

    def _code(self, plugin: str, what: str) -> int:
        if (plugin, what) not in self._codes:
            self._codes[plugin, what] = self.page.add(plugin, what)
        return self._codes[plugin, what]


class _Codes(dict[tuple[str, Stage], int]):
    """Codes by plugin and stage; a pair without a code is registered when looked up."""

    def __init__(self, register: Callable[[str, str], int]) -> None:
        self._register = register

    def __missing__(self, call: tuple[str, Stage]) -> int:
        plugin, stage = call
        self[call] = self._register(plugin, stage.value)
        return self[call]
