"""The writer of an event file, derived from the file's name.

Names read ``events.out.tfevents.<seconds>.<host>.<pid>.<number><suffix>``; the training helper's suffix is
``.r<incarnation>``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

_NAME = re.compile(r"tfevents\.(?P<seconds>\d+)\.(?P<process>.*\.\d+)\.(?P<number>\d+)")
_SECONDS = re.compile(r"tfevents\.(\d+)")
_INCARNATION = re.compile(r"\.r(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Name:
    seconds: int
    number: int
    text: str
    process: str
    incarnation: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        full, seconds, incarnation = _NAME.search(text), _SECONDS.search(text), _INCARNATION.search(text)
        return cls(
            seconds=int(seconds[1]) if seconds else 0,
            number=int(full["number"]) if full else 0,
            text=text,
            process=full["process"] if full else "",
            incarnation=int(incarnation[1]) if incarnation else None,
        )


def is_event_file(name: str) -> bool:
    """Return whether a file of this name holds events, as TensorBoard does."""
    return "tfevents" in name


def number_writers(names: Iterable[str]) -> dict[str, int]:
    """Return the writer of each file, in the order of writers and, within one, of time stamps; a newer one is higher.

    A suffix ``.r<k>`` makes a file the writer k's. Where no file has one, every file is a writer of its own, from 1 in
    the order of their time stamps. A file without suffix among others with one (the writer of a script that also uses
    the training helper) belongs to the incarnation of the same process, else to the last one begun by then, else to 0.
    """
    parsed = sorted(_Name.parse(name) for name in names)
    begun = [name for name in parsed if name.incarnation is not None]
    if not begun:
        return {name.text: number for number, name in enumerate(parsed, 1)}
    numbers = {name.text: _incarnation_of(name, begun) for name in parsed}
    return dict(sorted(numbers.items(), key=lambda item: item[1]))


def _incarnation_of(name: _Name, begun: list[_Name]) -> int:
    if name.incarnation is not None:
        return name.incarnation
    same = [other for other in begun if other.process == name.process and name.process]
    earlier = [other for other in begun if other.seconds <= name.seconds]
    if same:
        nearest = min(same, key=lambda other: abs(other.seconds - name.seconds))
        return nearest.incarnation or 0
    return max((other.incarnation or 0 for other in earlier), default=0)
