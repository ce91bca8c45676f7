"""One damage to a journal's files as a killed arbiter leaves them: write-ahead log, pages, shared memory, mark.

Nothing opens the journal between the kill and the damage: opening and closing it would empty the log into the file.
"""

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from chaos.damage.world import JOURNAL
from eunomia_appmaster.node.mark_file import MARK

WAL, SHM = f"{JOURNAL}-wal", f"{JOURNAL}-shm"
WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
MOST_BYTES: Final = 16


def damage_files(folder: Path, earlier: Path, seed: int) -> str:
    """Do one damage to the files of a state folder, and name it; what does not apply is drawn again.

    Args:
        folder: of an arbiter that was killed.
        earlier: the same folder some steps before.
        seed: draws the damage.
    """
    chance = random.Random(seed)
    while True:
        kind = chance.choice(sorted(FILE_KINDS))
        where = FILE_KINDS[kind](folder, earlier, chance)
        if where is not None:
            return f"{kind}: {where}"


def _content(path: Path) -> bytearray:
    return bytearray(path.read_bytes()) if path.exists() else bytearray()


def _page_size(folder: Path) -> int:
    """Return the bytes of a page, by the header of the log, else of the file."""
    log = _content(folder / WAL)
    if len(log) >= WAL_HEADER_BYTES:
        return int.from_bytes(log[8:12], "big")
    return int.from_bytes(_content(folder / JOURNAL)[16:18], "big") or 4096


def _bytes_of(name: str) -> "Damaging":
    def put(folder: Path, _: Path, chance: random.Random) -> str | None:
        content = _content(folder / name)
        if not content:
            return None
        start, count = chance.randrange(len(content)), chance.randint(1, MOST_BYTES)
        content[start : start + count] = chance.randbytes(len(content[start : start + count]))
        (folder / name).write_bytes(content)
        return f"{count} bytes from {start} of {len(content)}"

    return put


def _bit_of(name: str) -> "Damaging":
    def flip(folder: Path, _: Path, chance: random.Random) -> str | None:
        content = _content(folder / name)
        if not content:
            return None
        at = chance.randrange(len(content))
        content[at] ^= 1 << chance.randrange(8)
        (folder / name).write_bytes(content)
        return f"byte {at} of {len(content)}"

    return flip


def _cut_of(name: str) -> "Damaging":
    def cut(folder: Path, _: Path, chance: random.Random) -> str | None:
        content = _content(folder / name)
        if not content:
            return None
        length = chance.randrange(len(content))
        (folder / name).write_bytes(content[:length])
        return f"{length} of {len(content)} bytes are left"

    return cut


def _gone(name: str) -> "Damaging":
    def remove(folder: Path, _: Path, chance: random.Random) -> str | None:
        if not (folder / name).exists():
            return None
        (folder / name).unlink()
        return "gone"

    return remove


def _older(*names: str) -> "Damaging":
    def restore(folder: Path, earlier: Path, chance: random.Random) -> str | None:
        if not all((earlier / name).exists() for name in names):
            return None
        for name in names:
            shutil.copyfile(earlier / name, folder / name)
        return "as it was some steps before"

    return restore


def _frames(folder: Path) -> tuple[bytearray, int, int]:
    """Return the log, the bytes of a frame, and how many there are."""
    log, size = _content(folder / WAL), _page_size(folder) + FRAME_HEADER_BYTES
    return log, size, max(0, len(log) - WAL_HEADER_BYTES) // size


def _frame_zeroed(folder: Path, _: Path, chance: random.Random) -> str | None:
    log, size, count = _frames(folder)
    if not count:
        return None
    frame = chance.randrange(count)
    start = WAL_HEADER_BYTES + frame * size
    log[start : start + size] = bytes(size)
    (folder / WAL).write_bytes(log)
    return f"frame {frame} of {count}"


def _frames_swapped(folder: Path, _: Path, chance: random.Random) -> str | None:
    log, size, count = _frames(folder)
    if count < 2:
        return None
    one, two = (WAL_HEADER_BYTES + frame * size for frame in chance.sample(range(count), 2))
    log[one : one + size], log[two : two + size] = log[two : two + size], log[one : one + size]
    (folder / WAL).write_bytes(log)
    return f"frames at {one} and {two}"


def _log_header(folder: Path, _: Path, chance: random.Random) -> str | None:
    log = _content(folder / WAL)
    if not log:
        return None
    at = chance.randrange(min(WAL_HEADER_BYTES, len(log)))
    log[at] ^= 1 << chance.randrange(8)
    (folder / WAL).write_bytes(log)
    return f"byte {at}"


def _pages(folder: Path) -> tuple[bytearray, int, int]:
    content, size = _content(folder / JOURNAL), _page_size(folder)
    return content, size, len(content) // size


def _page_zeroed(folder: Path, _: Path, chance: random.Random) -> str | None:
    content, size, count = _pages(folder)
    if not count:
        return None
    page = chance.randrange(count)
    content[page * size : (page + 1) * size] = bytes(size)
    (folder / JOURNAL).write_bytes(content)
    return f"page {page + 1} of {count}"


def _pages_swapped(folder: Path, _: Path, chance: random.Random) -> str | None:
    content, size, count = _pages(folder)
    if count < 2:
        return None
    one, two = (page * size for page in chance.sample(range(count), 2))
    content[one : one + size], content[two : two + size] = content[two : two + size], content[one : one + size]
    (folder / JOURNAL).write_bytes(content)
    return f"pages {one // size + 1} and {two // size + 1} of {count}"


def _page_older(folder: Path, earlier: Path, chance: random.Random) -> str | None:
    """A page as it was before: a write that the disk lost."""
    content, size, count = _pages(folder)
    before = _content(earlier / JOURNAL)
    changed = [
        page
        for page in range(min(count, len(before) // size))
        if content[page * size : (page + 1) * size] != before[page * size : (page + 1) * size]
    ]
    if not changed:
        return None
    page = chance.choice(changed)
    content[page * size : (page + 1) * size] = before[page * size : (page + 1) * size]
    (folder / JOURNAL).write_bytes(content)
    return f"page {page + 1} of {count}"


Damaging = Callable[[Path, Path, random.Random], str | None]
FILE_KINDS: Final[Mapping[str, Damaging]] = {
    "file and log gone": lambda folder, earlier, chance: (
        _gone(WAL)(folder, earlier, chance) and _gone(JOURNAL)(folder, earlier, chance)
    ),
    "file gone": _gone(JOURNAL),
    "file: bit": _bit_of(JOURNAL),
    "file: bytes": _bytes_of(JOURNAL),
    "file: cut": _cut_of(JOURNAL),
    "file: older": _older(JOURNAL),
    "file and log: older": _older(JOURNAL, WAL),
    "log gone": _gone(WAL),
    "log: bit": _bit_of(WAL),
    "log: bit of the header": _log_header,
    "log: bytes": _bytes_of(WAL),
    "log: cut": _cut_of(WAL),
    "log: frame zeroed": _frame_zeroed,
    "log: frames swapped": _frames_swapped,
    "log: older": _older(WAL),
    "mark gone": _gone(MARK),
    "mark: bytes": _bytes_of(MARK),
    "mark: cut": _cut_of(MARK),
    "mark: older": _older(MARK),
    "page older": _page_older,
    "page zeroed": _page_zeroed,
    "pages swapped": _pages_swapped,
    "shared memory gone": _gone(SHM),
    "shared memory: bytes": _bytes_of(SHM),
}
