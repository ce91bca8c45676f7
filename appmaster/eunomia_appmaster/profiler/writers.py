"""The writer of an event file, derived from the file's name.

A name is ``events.out.tfevents.<seconds>.<host>.<pid>.<number><suffix>``; the training helper's suffix is
``.a<attempt>.r<incarnation>``, without the attempt if no app master started the run.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

_NAME = re.compile(r"tfevents\.(?P<seconds>\d+)\.(?P<process>.*\.\d+)\.(?P<number>\d+)")
_SECONDS = re.compile(r"tfevents\.(\d+)")
_SUFFIX = re.compile(r"(?:\.a(?P<attempt>\d+))?\.r(?P<incarnation>\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Name:
    seconds: int
    number: int
    text: str
    process: str
    attempt: int
    incarnation: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        full, seconds, suffix = _NAME.search(text), _SECONDS.search(text), _SUFFIX.search(text)
        return cls(
            seconds=int(seconds[1]) if seconds else 0,
            number=int(full["number"]) if full else 0,
            text=text,
            process=full["process"] if full else "",
            attempt=int(suffix["attempt"] or 0) if suffix else 0,
            incarnation=int(suffix["incarnation"]) if suffix else None,
        )


def is_event_file(name: str) -> bool:
    """Return whether a file with this name contains events, by TensorBoard's rule."""
    return "tfevents" in name


def number_writers(names: Iterable[str]) -> dict[str, int]:
    """Return the writer number of each file, sorted by writer and then by time stamp; newer writers have higher ones.

    A file with the suffix ``.r<k>`` belongs to writer k. But an app master that was cut off may have started
    incarnations with the same numbers as a later attempt; these are older than the later attempt's first incarnation,
    and belong to the writer before it. If no file has a suffix, each file is a separate writer, numbered from 1 by time
    stamp. A file without a suffix among files with one (of a script that has its own writer besides the training
    helper) belongs to the incarnation of the same process, else to the last one begun by then, else to 0.
    """
    parsed = sorted(_Name.parse(name) for name in names)
    begun = [name for name in parsed if name.incarnation is not None]
    if not begun:
        return {name.text: number for number, name in enumerate(parsed, 1)}
    first: dict[int, int] = {}
    """The first incarnation that an attempt started, by attempt."""
    for name in begun:
        first[name.attempt] = min(name.incarnation or 0, first.get(name.attempt, name.incarnation or 0))
    numbers = {name.text: _writer_of(name, begun, first) for name in parsed}
    return dict(sorted(numbers.items(), key=lambda item: item[1]))


def _writer_of(name: _Name, begun: list[_Name], first: Mapping[int, int]) -> int:
    if name.incarnation is not None:
        later = [incarnation - 1 for attempt, incarnation in first.items() if attempt > name.attempt]
        return min([name.incarnation, *later])
    same = [other for other in begun if other.process == name.process and name.process]
    earlier = [other for other in begun if other.seconds <= name.seconds]
    if same:
        nearest = min(same, key=lambda other: abs(other.seconds - name.seconds))
        return _writer_of(nearest, begun, first)
    return max((_writer_of(other, begun, first) for other in earlier), default=0)
