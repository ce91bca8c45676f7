"""Recommends a policy: one sentence with its advantage and its cost, by a fixed rule."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.metrics.intervals import Interval, enough_to_decide, interval
from eunomia_testbed.report.words import duration, percent

FAIR, FAST = "rho_worst", "jct_mean_seconds"
"""Metrics of the recommendation: the worst ρ, and the mean JCT."""
MOST_SEEDS = 1_000
"""Most seeds that an estimate names; beyond it the policies count as equally good."""


@value
class Choice:
    """The recommended policy with the reason, and the policies that no other policy dominates.

    ``alike`` are the policies that the seeds do not distinguish from it; with one of these the choice is undecided.
    """

    policy: str
    because: str
    frontier: tuple[str, ...]
    among: tuple[str, ...]
    alike: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Return whether the seeds distinguish the policy from every other policy."""
        return not self.alike

    @property
    def answer(self) -> str:
        """Return the recommendation in words, such as ``Take las``, or ``Undecided: las or srtf``."""
        if self.decided:
            return f"Take {self.policy}"
        *others, last = (self.policy, *self.alike)
        return f"Undecided: {', '.join(others)} or {last}"


def choose(summaries: pl.DataFrame, order: Sequence[str], kind: str = "ρ") -> Choice | None:
    """Choose the policy with the smallest product of worst ρ and mean JCT, each relative to the best policy.

    A policy under which fewer apps finished than under another is excluded. If no ρ is known, the mean JCT decides.

    Args:
        summaries: a row for each policy and seed, with the columns of ``Summary``.
        order: order of the policies; the earlier wins a tie.
        kind: the kind of ρ, in words.
    """
    seeds = {policy: summaries.filter(pl.col("policy") == policy).sort("seed") for policy in order}
    fast = {policy: over_seeds(rows, FAST) for policy, rows in seeds.items()}
    fair = {policy: over_seeds(rows, FAIR) for policy, rows in seeds.items()}
    done = {policy: _finished(rows) for policy, rows in seeds.items()}
    able = [policy for policy in order if fast[policy] is not None and done[policy] == max(done.values())]
    if not able:
        return None
    judged = all(fair[policy] is not None for policy in able)
    times = {policy: _mean(fast[policy]) for policy in able}
    rhos = {policy: _mean(fair[policy]) if judged else 1.0 for policy in able}
    taken = min(able, key=lambda policy: times[policy] * rhos[policy])
    kept = tuple(each for each in able if not any(_dominates(other, each, times, rhos) for other in able))
    quickest = min(able, key=times.__getitem__)
    fairest = min(able, key=rhos.__getitem__)
    clauses = [f"not all finished under {', '.join(left)}"] if (left := [p for p in order if p not in able]) else []
    clauses.append(_time(seeds, taken, quickest, times, _second(able, taken, times)))
    if judged:
        clauses.append(_rho(seeds, taken, fairest, rhos, _second(able, taken, rhos), kind))
    weighed = (FAST, FAIR) if judged else (FAST,)
    others = [each for each in able if each != taken]
    alike = [each for each in others if all(_noise(seeds, metric, taken, each) for metric in weighed)]
    clauses.append(_open(seeds, taken, alike, weighed))
    because = "; ".join(filter(None, clauses))
    return Choice(policy=taken, because=because, frontier=kept, among=tuple(order), alike=tuple(alike))


def over_seeds(rows: pl.DataFrame, metric: str) -> Interval | None:
    """Return mean and interval of the known values of a metric; None: no value is known."""
    return interval(rows[metric].fill_nan(None).drop_nulls().cast(pl.Float64).to_list())


def _finished(rows: pl.DataFrame) -> float:
    """Return the fraction of apps that finished."""
    total = int(rows["apps"].sum())
    return int(rows["apps_finished"].sum()) / total if total else 0.0


def _mean(found: Interval | None) -> float:
    return found.mean if found is not None else float("inf")


def _dominates(other: str, each: str, times: dict[str, float], rhos: dict[str, float]) -> bool:
    """Return whether another policy is at least as good in both metrics, and better in one."""
    return (times[other], rhos[other]) != (times[each], rhos[each]) and (
        times[other] <= times[each] and rhos[other] <= rhos[each]
    )


def _second(able: Sequence[str], taken: str, values: dict[str, float]) -> str:
    """Return the best of the other policies; the policy itself if there is no other."""
    return min((policy for policy in able if policy != taken), key=values.__getitem__, default=taken)


def _time(seeds: dict[str, pl.DataFrame], taken: str, best: str, times: dict[str, float], second: str) -> str:
    mean = f"mean JCT {duration(times[taken])}"
    if taken == best:
        behind = f" ({second}: {duration(times[second])})" if second != taken else ""
        return f"{mean}, the shortest{_noise(seeds, FAST, taken, second)}{behind}"
    more = times[taken] / times[best] - 1
    return f"{mean}, {percent(more)} longer than under {best}, the shortest{_noise(seeds, FAST, taken, best)}"


def _rho(seeds: dict[str, pl.DataFrame], taken: str, best: str, rhos: dict[str, float], second: str, kind: str) -> str:
    means = ", mean of the seeds" if max(rows.height for rows in seeds.values()) > 1 else ""
    worst = f"worst {kind} {rhos[taken]:.2f}{means}"
    if taken == best:
        behind = f" ({second}: {rhos[second]:.2f})" if second != taken else ""
        return f"{worst}, the lowest{_noise(seeds, FAIR, taken, second)}{behind}"
    return f"{worst} against {rhos[best]:.2f} under {best}, the lowest{_noise(seeds, FAIR, taken, best)}"


def _open(seeds: dict[str, pl.DataFrame], taken: str, alike: Sequence[str], weighed: Sequence[str]) -> str:
    """Describe what the seeds leave undecided and how many would decide; a single seed shows no noise."""
    if max(rows.height for rows in seeds.values()) == 1:
        return "of one seed: several seeds show whether that is more than chance"
    if not alike:
        return ""
    wanted = [_seeds_to_decide(seeds, taken, each, weighed) for each in alike]
    known = [count for count in wanted if count is not None]
    more = f"about {max(known):,} seeds would decide" if len(known) == len(alike) else _as_good_as_equal(alike, wanted)
    return f"these seeds do not distinguish {taken} from {', '.join(alike)}; {more}"


def _as_good_as_equal(alike: Sequence[str], wanted: Sequence[int | None]) -> str:
    """Name the policies that a reasonable number of seeds cannot distinguish."""
    equal = ", ".join(each for each, count in zip(alike, wanted, strict=True) if count is None)
    return f"{MOST_SEEDS:,} seeds would not distinguish it from {equal} either: as good as equal here"


def _seeds_to_decide(seeds: dict[str, pl.DataFrame], one: str, other: str, weighed: Sequence[str]) -> int | None:
    """Return the fewest seeds that distinguish two policies in one of the metrics; None: more than ``MOST_SEEDS``."""
    found = [enough_to_decide(_differences(seeds, metric, one, other), MOST_SEEDS) for metric in weighed]
    return min((count for count in found if count is not None), default=None)


def _differences(seeds: dict[str, pl.DataFrame], metric: str, one: str, other: str) -> list[float]:
    """Return the differences of a metric, seed by seed."""
    pairs = seeds[one].select("seed", metric).join(seeds[other].select("seed", metric), on="seed").drop_nulls()
    return [float(each) for each in pairs[metric] - pairs[f"{metric}_right"]]


def _noise(seeds: dict[str, pl.DataFrame], metric: str, one: str, other: str) -> str:
    """Return a note if the interval of the difference over the seeds contains 0; empty for a single seed."""
    found = interval(_differences(seeds, metric, one, other))
    if one == other or found is None or found.count == 1 or not found.holds_zero:
        return ""
    return ", a difference within the noise of the seeds"
