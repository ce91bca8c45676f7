"""Records the plugin and the hook of each call, before the call and after each step."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping

from eunomia.arbiter import ClusterView
from eunomia.units import Stage
from eunomia_testbed.calls.page import CallPage


class CallNotes:
    """A recorder of the current plugin call on a page.

    Attributes:
        numbers: the numbers of the page; the first is 0 when there is no current call.

    Args:
        place: policy and seed, for errors.
        page: the page; None: a page in this process's memory.
    """

    def __init__(self, place: str = "", page: CallPage | None = None) -> None:
        self.page = CallPage() if page is None else page
        self.page.begin(place)
        self.numbers = self.page.numbers
        self._next = itertools.count(1).__next__
        self._codes: dict[tuple[str, str], int] = {}

    def observer(self, view: ClusterView, names: Mapping[Stage, str]) -> Callable[[str, Stage], None]:
        """Return a callback for the arbiter that records each call of a stage before it starts.

        Args:
            view: the arbiter's view of the cluster.
            names: the plugins' names by stage, which are written on the page before the first call.
        """
        numbers, follow = self.numbers, self._next
        codes: dict[str, dict[Stage, int]] = {}
        for stage, plugin in names.items():
            codes.setdefault(plugin, {})[stage] = self._code(plugin, stage.value)

        def asked(plugin: str, stage: Stage) -> None:
            try:
                numbers[1] = codes[plugin][stage]
            except KeyError:
                numbers[1] = codes.setdefault(plugin, {})[stage] = self._code(plugin, stage.value)
            numbers[2] = view.round
            numbers[0] = follow()

        return asked

    @contextlib.contextmanager
    def asking(self, plugin: str, what: str) -> Iterator[None]:
        """Record one call outside the stages of a round, for the duration of the block."""
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
