"""Cyclic garbage of arbiter and launcher is collected at set times."""

import asyncio
import contextlib
import gc
import weakref

from eunomia_appmaster.node.garbage import collect_garbage


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.mine = self


def test_reference_cycles_are_collected_periodically_with_automatic_collection_off() -> None:
    async def gone() -> bool:
        seen = weakref.ref(Cycle())
        collecting = asyncio.create_task(collect_garbage(0.01))
        for _ in range(500):
            await asyncio.sleep(0.01)
            if seen() is None:
                break
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting
        return seen() is None

    gc.disable()
    try:
        assert asyncio.run(gone())
    finally:
        gc.enable()
