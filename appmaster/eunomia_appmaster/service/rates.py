"""Rate limits: one token bucket per caller."""

import dataclasses
from collections import OrderedDict
from typing import Final, NoReturn

import grpc

RETRY_KEY: Final = "grpc-retry-pushback-ms"
"""Trailing metadata of a refusal: gRPC's own key for the milliseconds after which to call again."""
MOST_NAMES: Final = 10_000
"""Maximum number of tracked callers; the one that called longest ago is dropped first, which refills its bucket."""
DROPPED: Final = 2
"""Maximum number of full buckets that a call drops. A call adds at most one, so unused buckets do not accumulate."""


@dataclasses.dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class Rate:
    """A rate limit for each caller.

    Args:
        what: the limited thing, for the error, such as ``registrations of one app``.
        per_second: sustained calls per second.
        burst: maximum number of calls at once (the bucket's capacity).
    """

    def __init__(self, what: str, per_second: float, burst: float) -> None:
        self.what = what
        self.per_second = per_second
        self.burst = burst
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    @property
    def callers(self) -> int:
        """Return the number of tracked callers."""
        return len(self._buckets)

    def take(self, name: str, now: float) -> float:
        """Take a token from a caller's bucket.

        Args:
            name: the caller's name.
            now: seconds of a monotonic clock.

        Returns:
            0 if there was a token, else the seconds until there is one.
        """
        bucket = self._buckets.setdefault(name, _Bucket(self.burst, now))
        self._buckets.move_to_end(name)
        if len(self._buckets) > MOST_NAMES:
            self._buckets.popitem(last=False)
        self._drop_full(now)
        bucket.level = self._level(bucket, now)
        bucket.at = now
        if bucket.level < 1.0:
            return (1.0 - bucket.level) / self.per_second
        bucket.level -= 1.0
        return 0.0

    def _level(self, bucket: _Bucket, now: float) -> float:
        return min(self.burst, bucket.level + (now - bucket.at) * self.per_second)

    def _drop_full(self, now: float) -> None:
        """Drop full buckets, which are equivalent to new ones, of the callers that called longest ago."""
        for _ in range(DROPPED):
            name, bucket = next(iter(self._buckets.items()))
            if len(self._buckets) == 1 or self._level(bucket, now) < self.burst:
                return
            del self._buckets[name]

    async def ask(self, name: str, now: float, context: "grpc.aio.ServicerContext[object, object]") -> None:
        """Take a token; if there is none, end the call with RESOURCE_EXHAUSTED and the time until the next try."""
        seconds = self.take(name, now)
        if seconds > 0.0:
            await exhausted(
                context, f"{self.what} must be at most {self.per_second:g} a second, but got more", name, seconds
            )


async def exhausted(
    context: "grpc.aio.ServicerContext[object, object]", rule: str, place: str, seconds: float
) -> NoReturn:
    """End a call with RESOURCE_EXHAUSTED; ``seconds``: time until the next try."""
    words = f"{rule} ({place}); ask again in {max(seconds, 0.001):.3f} s"
    pushback = ((RETRY_KEY, str(max(1, round(1000.0 * seconds)))),)
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, words, pushback)


def peer_of(context: "grpc.aio.ServicerContext[object, object]") -> str:
    """Return the caller's address without its port."""
    peer = str(context.peer())
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
