"""A compact form of the outcomes of an app's jobs, for the app's note in the journal."""

from collections.abc import Iterable, Iterator, Mapping

MOST_LETTERS = 400
"""Length of a list of ranges, in characters, above which a bit set (one bit per number) may be shorter."""


def compact(ended: Mapping[str, str]) -> dict[str, str]:
    """Return the job numbers by outcome, as ranges (``1-40,43``) or as a bit set in hexadecimal digits (``0x...``).

    Args:
        ended: outcome by job, ``app/number``.
    """
    numbers: dict[str, list[int]] = {}
    for job, how in ended.items():
        numbers.setdefault(how, []).append(int(job.rpartition("/")[2]))
    return {how: _text(sorted(of)) for how, of in sorted(numbers.items())}


def expanded(app: str, numbers: Mapping[str, str]) -> dict[str, str]:
    """Return the outcome by job: the inverse of ``compact``; values of an earlier version are returned unchanged.

    Raises:
        ValueError: a text is malformed.
    """
    if any("/" in key for key in numbers):
        return dict(numbers)
    ended = {number: how for how, text in numbers.items() for number in _numbers(text)}
    return {f"{app}/{number}": how for number, how in sorted(ended.items())}


def _text(numbers: list[int]) -> str:
    ranges = ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in _ranges(numbers))
    if len(ranges) <= max(MOST_LETTERS, max(numbers) // 4):
        return ranges
    bits = bytearray(max(numbers) // 8 + 1)
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    return f"0x{bits.hex()}"


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = -2
    for number in numbers:
        if number != last + 1:
            if first >= 0:
                yield first, last
            first = number
        last = number
    if first >= 0:
        yield first, last


def _numbers(text: str) -> Iterator[int]:
    if text.startswith("0x"):
        for place, byte in enumerate(bytes.fromhex(text[2:])):
            yield from (8 * place + bit for bit in range(8) if byte >> bit & 1)
        return
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
