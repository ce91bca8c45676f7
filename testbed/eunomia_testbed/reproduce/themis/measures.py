"""Functions that measure Themis' claims: Figures 9 to 19, Table 5, and the time of an auction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np

from eunomia_testbed.reproduce.themis.cells import BASELINES, POLICIES, Cell, Figures
from eunomia_testbed.reproduce.themis.grid import (
    CONTENTIONS,
    ERRORS,
    KNOBS,
    LEASES,
    LIES,
    NETWORK_PARTS,
    NETWORK_POLICIES,
    ThemisRuns,
)
from eunomia_testbed.reproduce.verdicts import NOT_RUN, Measured, Verdict, all_of, judged

Number = Callable[[Figures], float]


# --- helpers --------------------------------------------------------------------------------------------------------


def _mean(figures: Sequence[Figures], number: Number) -> float:
    """Return the mean over seeds."""
    return fmean(number(one) for one in figures) if figures else float("nan")


def _worst(one: Figures) -> float:
    return one.worst_rho


def _hours(one: Figures) -> float:
    return one.gpu_hours


def _over(by: dict[str, list[Figures]], number: Number, base: str = "themis") -> dict[str, list[float]]:
    """Return by policy a number divided by the base policy's, seed by seed."""
    return {
        policy: [number(one) / number(mine) for one, mine in zip(runs, by[base], strict=True)]
        for policy, runs in by.items()
        if policy != base
    }


def _by_seed(by: Mapping[str, Sequence[Figures]], number: Number, what: str) -> dict[str, tuple[float, ...]]:
    """Return a number of each policy or setting, seed by seed."""
    return {f"{what}, {name}": tuple(number(one) for one in found) for name, found in by.items()}


def _named(numbers: dict[str, float], digits: int = 2) -> str:
    """Return numbers as text, such as ``srsf 1.20 ... slaq 3.10``, least first."""
    pairs = sorted(numbers.items(), key=lambda pair: pair[1])
    return ", ".join(f"{policy} {number:.{digits}f}" for policy, number in pairs)


def _ends(ratios: dict[str, list[float]]) -> tuple[float, float]:
    """Return the least and the greatest of the means over seeds."""
    means = [fmean(ratio) for ratio in ratios.values()]
    return min(means), max(means)


# --- Figures 9 to 14 and Table 5 ------------------------------------------------------------------------------------


def worst_rho(workload: str) -> Callable[[ThemisRuns], Measured]:
    """Measure the worst ρ of every baseline over Themis' (Figures 9 and 10)."""

    def measure(runs: ThemisRuns) -> Measured:
        by = runs.by_policy(lambda policy, seed: runs.grid.testbed(workload, policy, seed), POLICIES)
        if not by["themis"]:
            return NOT_RUN
        ratios = _over(by, _worst)
        low, high = _ends(ratios)
        verdict = all_of(
            [
                judged(low, 2.2, direction=low > 1.0, better=low > 2.2),
                judged(high, 3.25, direction=high > 1.0, better=high > 3.25),
            ]
        )
        named = _named({policy: fmean(ratio) for policy, ratio in ratios.items()})
        least = sum(min(seed) >= 0.99 for seed in zip(*ratios.values(), strict=True))
        reason = (
            f"Themis' worst ρ is {_mean(by['themis'], _worst):.2f}, the least (to 1 %) in {least} of "
            f"{len(by['themis'])} seeds; over it: {named}"
        )
        text, seeds = f"{low:.2f}, {high:.2f}", _by_seed(by, _worst, "worst ρ")
        return Measured(text=text, verdict=verdict, reason=reason, values=(low, high), by_seed=seeds)

    return measure


def gpu_time_alike(runs: ThemisRuns) -> Measured:
    """Compare the GPU time of all schemes on workload 1 (Figure 11)."""
    by = runs.by_policy(lambda policy, seed: runs.grid.testbed("1", policy, seed), POLICIES)
    if not by["themis"]:
        return NOT_RUN
    return _alike(by)


def _alike(by: dict[str, list[Figures]]) -> Measured:
    """Check that no scheme takes more than a tenth more GPU time than another."""
    hours = {policy: _mean(found, _hours) for policy, found in by.items()}
    spread = max(hours.values()) / min(hours.values())
    least = min(hours, key=hours.__getitem__)
    reason = f"over {least}: {_named({k: v / hours[least] for k, v in hours.items() if k != least})}"
    verdict = Verdict.HOLDS if spread <= 1.10 else Verdict.DIRECTION if spread <= 1.25 else Verdict.FAILS
    text, seeds = f"within {100 * (spread - 1):.0f} %", _by_seed(by, _hours, "GPU hours")
    return Measured(text=text, verdict=verdict, reason=reason, values=(spread,), by_seed=seeds)


def gpu_time_over_themis(runs: ThemisRuns) -> Measured:
    """Measure GPU time on workload 2 over Themis' (Figure 12)."""
    by = runs.by_policy(lambda policy, seed: runs.grid.testbed("2", policy, seed), POLICIES)
    if not by["themis"]:
        return NOT_RUN
    ratios = {policy: fmean(ratio) for policy, ratio in _over(by, _hours).items()}
    gandiva, slaq = ratios["gandiva"], ratios["slaq"]
    verdict = all_of(
        [judged(gandiva, 1.048, direction=gandiva > 1.0), judged(slaq, 3.5, direction=slaq > 1.0, better=slaq > 3.5)]
    )
    mine = _mean(by["themis"], _hours)
    text, reason = f"{gandiva:.3f}, {slaq:.2f}", f"Themis' GPU hours {mine:.0f}; over them: {_named(ratios)}"
    seeds = _by_seed(by, _hours, "GPU hours")
    return Measured(text=text, verdict=verdict, reason=reason, values=(gandiva, slaq), by_seed=seeds)


def long_and_short(runs: ThemisRuns) -> Measured:
    """Measure the mean ρ of the third of the apps with the most work, and of the third with the least (Table 5)."""
    by = runs.by_policy(lambda policy, seed: runs.grid.testbed("2", policy, seed), ("themis", "tiresias"))
    if not by["themis"]:
        return NOT_RUN
    (long, short), (other_long, other_short) = (
        (_mean(by[policy], _long), _mean(by[policy], _short)) for policy in ("themis", "tiresias")
    )
    direction = short < other_short
    verdict = all_of(
        [
            judged(here, printed, direction=direction)
            for here, printed in ((long, 1.0), (short, 1.2), (other_long, 0.9), (other_short, 1.9))
        ]
    )
    reason = "the long third and the short third of the apps; the paper shows one pair of jobs"
    text = f"{long:.2f} and {short:.2f}, {other_long:.2f} and {other_short:.2f}"
    seeds = _by_seed(by, _long, "long apps") | _by_seed(by, _short, "short apps")
    values = (long, short, other_long, other_short)
    return Measured(text=text, verdict=verdict, reason=reason, values=values, by_seed=seeds)


def _long(one: Figures) -> float:
    """Return the mean ρ of the third of the apps with the most work."""
    order = np.argsort(one.work_gpu_seconds)
    return float(np.nanmean(np.array(one.rho)[order[-max(1, order.size // 3) :]]))


def _short(one: Figures) -> float:
    """Return the mean ρ of the third of the apps with the least work."""
    order = np.argsort(one.work_gpu_seconds)
    return float(np.nanmean(np.array(one.rho)[order[: max(1, order.size // 3)]]))


def placement(runs: ThemisRuns) -> Measured:
    """Measure placement scores on both workloads (Figure 13)."""
    scores: dict[str, dict[str, float]] = {}
    seeds: dict[str, tuple[float, ...]] = {}
    for workload in ("1", "2"):

        def cell(policy: str, seed: int, workload: str = workload) -> "object":
            return runs.grid.testbed(workload, policy, seed)

        by = runs.by_policy(cell, POLICIES)  # type: ignore[arg-type]
        if not by["themis"]:
            return NOT_RUN
        scores[workload] = {policy: _mean(found, _score) for policy, found in by.items()}
        seeds |= _by_seed(by, _score, f"workload {workload}")
    best = max(scores["2"].values())
    near_one = min(scores["1"].values()) >= 0.9
    themis = scores["2"]["themis"]
    beaten = [policy for policy in BASELINES if scores["2"][policy] > themis + 0.01]
    verdict = Verdict.HOLDS if near_one and not beaten else Verdict.DIRECTION if themis >= 0.9 * best else Verdict.FAILS
    ahead = f"; ahead of Themis: {', '.join(beaten)}" if beaten else ""
    reason = f"workload 1 at least {min(scores['1'].values()):.2f}; workload 2: {_named(scores['2'])}{ahead}"
    text = f"{themis:.3f}, best {best:.3f}"
    return Measured(text=text, verdict=verdict, reason=reason, values=(themis, best), by_seed=seeds)


def _score(one: Figures) -> float:
    """Return the placement score of all GPU time."""
    weight = np.nan_to_num(np.array(one.gpu_seconds))
    score = np.array(one.placement_score)
    known = np.isfinite(score)
    return float((score[known] * weight[known]).sum() / max(weight[known].sum(), 1e-9))


def contention(runs: ThemisRuns) -> Measured:
    """Measure worst ρ on clusters with decreasing numbers of GPUs (Figure 14)."""
    worst: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    seeds: dict[str, tuple[float, ...]] = {}
    for shrink in CONTENTIONS:
        by = runs.by_policy(lambda policy, seed, shrink=shrink: runs.grid.testbed("1", policy, seed, shrink), POLICIES)  # type: ignore[misc]
        if not by["themis"]:
            return NOT_RUN
        for policy, found in by.items():
            worst[policy].append(_mean(found, _worst))
        seeds |= _by_seed(by, _worst, f"x{shrink}")
    themis = worst["themis"]
    least = all(themis[at] <= min(worst[policy][at] for policy in BASELINES) for at in range(len(CONTENTIONS)))
    others = {policy: worst[policy][-1] for policy in BASELINES}
    second = min(others, key=others.__getitem__)
    keeps = max(themis) <= 1.1
    verdict = Verdict.HOLDS if least and keeps and second == "srsf" else Verdict.DIRECTION if least else Verdict.FAILS
    text = ", ".join(f"{one:.2f}" for one in themis)
    reason = f"at x4, next is {second}: {_named(others)}"
    return Measured(text=text, verdict=verdict, reason=reason, values=tuple(themis), by_seed=seeds)


# --- Figures 15 to 19 -----------------------------------------------------------------------------------------------


def _network(runs: ThemisRuns, part: float) -> dict[str, list[Figures]]:
    return runs.by_policy(lambda policy, seed: runs.grid.network(part, policy, seed), NETWORK_POLICIES)


def all_network(runs: ThemisRuns) -> Measured:
    """Measure worst ρ over Themis' if every app is network-intensive (Figure 15)."""
    by = _network(runs, 1.0)
    if not by["themis"]:
        return NOT_RUN
    ratios = _over(by, _worst)
    low, high = _ends(ratios)
    verdict = all_of(
        [
            judged(low, 1.24, direction=low > 1.0, better=low > 1.24),
            judged(high, 1.77, direction=high > 1.0, better=high > 1.77),
        ]
    )
    reason = f"of {', '.join(NETWORK_POLICIES[1:])}: {_named({k: fmean(v) for k, v in ratios.items()})}"
    text, seeds = f"{low:.2f}, {high:.2f}", _by_seed(by, _worst, "worst ρ")
    return Measured(text=text, verdict=verdict, reason=reason, values=(low, high), by_seed=seeds)


def every_network_part(runs: ThemisRuns) -> Measured:
    """Check that Themis' worst ρ is the least, for each fraction of network-intensive apps (Figure 15)."""
    first, themis = [], []
    seeds: dict[str, tuple[float, ...]] = {}
    for part in NETWORK_PARTS:
        by = _network(runs, part)
        if not by["themis"]:
            return NOT_RUN
        worst = {policy: _mean(found, _worst) for policy, found in by.items()}
        themis.append(worst["themis"])
        first.append(worst["themis"] <= min(worst.values()))
        seeds |= _by_seed(by, _worst, f"{100 * part:.0f} %")
    count = sum(first)
    verdict = Verdict.HOLDS if count == len(first) else Verdict.DIRECTION if 2 * count > len(first) else Verdict.FAILS
    reason = "Themis' worst ρ from 0 to 100 %: " + ", ".join(f"{one:.2f}" for one in themis)
    text = f"{count} of {len(first)}"
    return Measured(text=text, verdict=verdict, reason=reason, values=tuple(themis), by_seed=seeds)


def network_gpu_time(runs: ThemisRuns) -> Measured:
    """Measure GPU time over Themis' if every app is network-intensive (Figure 16)."""
    by = _network(runs, 1.0)
    if not by["themis"]:
        return NOT_RUN
    ratios = {policy: fmean(ratio) for policy, ratio in _over(by, _hours).items()}
    gandiva = ratios["gandiva"]
    reason = f"{100 * (gandiva - 1):+.1f} % where the paper has +8.1 %; over Themis: {_named(ratios)}"
    verdict, seeds = judged(gandiva, 1.081, direction=gandiva > 1.0), _by_seed(by, _hours, "GPU hours")
    return Measured(text=f"{gandiva:.3f}", verdict=verdict, reason=reason, values=(gandiva,), by_seed=seeds)


def compute_gpu_time(runs: ThemisRuns) -> Measured:
    """Measure GPU time of all schemes if no app is network-intensive (Figure 16)."""
    by = _network(runs, 0.0)
    return _alike(by) if by["themis"] else NOT_RUN


def errors(on: str) -> Callable[[ThemisRuns], Measured]:
    """Measure the rise of Themis' worst ρ with errors of reports (Figure 17).

    Args:
        on: the quantity that is reported with an error, one of ``ERRED``.
    """

    def measure(runs: ThemisRuns) -> Measured:
        found = _of_settings(runs, ERRORS, lambda error, seed: runs.grid.error(error, on, seed))
        if len(found) < len(ERRORS):
            return NOT_RUN
        worst = {error: _mean(one, _worst) for error, one in found.items()}
        change = worst[0.2] / worst[0.0] - 1.0
        holds, near = abs(change) <= 0.1076 * 1.1, abs(change) <= 0.25
        return Measured(
            text=f"{100 * change:+.1f} %",
            verdict=Verdict.HOLDS if holds else Verdict.DIRECTION if near else Verdict.FAILS,
            reason="worst ρ: " + ", ".join(f"{100 * error:.0f} % {one:.2f}" for error, one in worst.items()),
            values=(change,),
            by_seed=_by_seed({f"{100 * error:.0f} %": one for error, one in found.items()}, _worst, "error"),
        )

    return measure


def _of_settings(
    runs: ThemisRuns, settings: Iterable[float], make: Callable[[float, int], Cell]
) -> dict[float, list[Figures]]:
    """Return the figures by setting, for seeds that have run all settings."""
    of = {str(setting): setting for setting in settings}
    by = runs.by_policy(lambda name, seed: make(of[name], seed), of)
    return {of[name]: found for name, found in by.items() if found}


def lies(runs: ThemisRuns) -> Measured:
    """Measure the gain of an app that overstates its slowdown by distance (Figure 18)."""
    found = _of_settings(runs, LIES, runs.grid.lie)
    if len(found) < len(LIES):
        return NOT_RUN
    own = {lie: _mean(one, _own_time) for lie, one in found.items()}
    others = {lie: _mean(one, _time_of_others) for lie, one in found.items()}
    gain = max(own[0.0] / one - 1.0 for lie, one in own.items() if lie > 0.0)
    loss = max(one / own[0.0] - 1.0 for lie, one in own.items() if lie > 0.34)
    verdict = Verdict.FAILS if gain > 0.02 else Verdict.HOLDS if loss > 0.02 else Verdict.DIRECTION
    named = ", ".join(
        f"{100 * lie:.0f} % {own[lie] / own[0.0]:.3f} ({others[lie] / others[0.0]:.3f})" for lie in LIES[1:]
    )
    reason = f"its completion time (the truthful apps') over that without a lie: {named}"
    seeds = _by_seed({f"{100 * lie:.0f} %": one for lie, one in found.items()}, _own_time, "completion in s, lie")
    text = f"gains {100 * gain:+.1f} %"
    return Measured(text=text, verdict=verdict, reason=reason, values=(gain, loss), by_seed=seeds)


def _own_time(one: Figures) -> float:
    """Return the completion time of the app that lies."""
    return one.jct_seconds[-1]


def _time_of_others(one: Figures) -> float:
    """Return the mean completion time of the truthful apps."""
    return fmean(one.jct_seconds[:-1])


def _of_knobs(runs: ThemisRuns) -> dict[float, list[Figures]]:
    return _of_settings(runs, KNOBS, lambda knob, seed: runs.grid.knob(knob, 600.0, seed))


def _of_leases(runs: ThemisRuns) -> dict[float, list[Figures]]:
    return _of_settings(runs, LEASES, lambda lease, seed: runs.grid.knob(0.8, lease, seed))


def knob(runs: ThemisRuns) -> Measured:
    """Measure worst ρ by f (Figure 19a)."""
    found = _of_knobs(runs)
    if len(found) < len(KNOBS):
        return NOT_RUN
    worst = {knob: _mean(one, _worst) for knob, one in found.items()}
    better, again = worst[0.8] < worst[0.0], worst[1.0] / worst[0.8]
    verdict = judged(again, 1.5, direction=better and again > 1.0)
    reason = "worst ρ: " + ", ".join(f"f {knob:g} {one:.2f}" for knob, one in worst.items())
    seeds = _by_seed({f"f {knob:g}": one for knob, one in found.items()}, _worst, "worst ρ")
    return Measured(text=f"{again:.2f}", verdict=verdict, reason=reason, values=tuple(worst.values()), by_seed=seeds)


def lease_rho(runs: ThemisRuns) -> Measured:
    """Measure worst ρ by the length of leases (Figure 19a)."""
    found = {f"{lease / 60:g} min": one for lease, one in _of_leases(runs).items()}
    return _trend(found, _worst, rises=True, what="worst ρ") if len(found) == len(LEASES) else NOT_RUN


def knob_gpu_time(runs: ThemisRuns) -> Measured:
    """Measure GPU time by f (Figure 19b)."""
    found = {f"f {knob:g}": one for knob, one in _of_knobs(runs).items()}
    return _trend(found, _hours, rises=True, what="GPU hours") if len(found) == len(KNOBS) else NOT_RUN


def lease_gpu_time(runs: ThemisRuns) -> Measured:
    """Measure GPU time by the length of leases (Figure 19b)."""
    found = {f"{lease / 60:g} min": one for lease, one in _of_leases(runs).items()}
    return _trend(found, _hours, rises=False, what="GPU hours") if len(found) == len(LEASES) else NOT_RUN


def _trend(by: Mapping[str, Sequence[Figures]], number: Number, *, rises: bool, what: str) -> Measured:
    """Check that a number rises (or falls) from the first setting to the last, and in most steps between."""
    means = [_mean(found, number) for found in by.values()]
    change = means[-1] / means[0] - 1.0
    goes = change > 0.0 if rises else change < 0.0
    steps = sum((after > before) == rises for before, after in pairwise(means))
    verdict = Verdict.FAILS if not goes else Verdict.HOLDS if 2 * steps > len(means) - 1 else Verdict.DIRECTION
    reason = f"{what}: " + ", ".join(f"{name} {one:.4g}" for name, one in zip(by, means, strict=True))
    seeds = _by_seed(by, number, what)
    return Measured(text=f"{100 * change:+.1f} %", verdict=verdict, reason=reason, values=tuple(means), by_seed=seeds)


def auction_time(runs: ThemisRuns) -> Measured:
    """Measure the mean CPU time of a round under Themis, in ms (§6.2.3)."""
    by = {
        f"workload {workload}": runs.of(lambda seed, w=workload: runs.grid.testbed(w, "themis", seed))  # type: ignore[misc]
        for workload in ("1", "2")
    }
    found = [one for of_workload in by.values() for one in of_workload]
    if not found:
        return NOT_RUN
    here = 1000.0 * sum(one.decision_seconds for one in found) / max(1, sum(one.rounds for one in found))
    reason = "CPU time of a whole round, all stages; the auction is a dynamic programme, not a solver's"
    return Measured(
        text=f"{here:.1f}",
        verdict=judged(here, 354.0, direction=here < 354.0, better=True),
        reason=reason,
        values=(here,),
        by_seed=_by_seed(by, lambda one: 1000.0 * one.decision_seconds / max(1, one.rounds), "ms"),
    )


# --- goals ----------------------------------------------------------------------------------------------------------


def goal_of_gpu_time(runs: ThemisRuns) -> Measured:
    """Compare GPU time on workload 2 with Gandiva's: at most 5 % more."""
    by = runs.by_policy(lambda policy, seed: runs.grid.testbed("2", policy, seed), POLICIES)
    return _goal(by, _hours, "GPU hours", most=1.05, digits=0) if by["themis"] else NOT_RUN


def goal_of_worst_rho(runs: ThemisRuns) -> Measured:
    """Compare worst ρ on workload 2 with Gandiva's: no more."""
    by = runs.by_policy(lambda policy, seed: runs.grid.testbed("2", policy, seed), POLICIES)
    return _goal(by, _worst, "worst ρ", most=1.0) if by["themis"] else NOT_RUN


def _goal(by: dict[str, list[Figures]], number: Number, what: str, *, most: float, digits: int = 2) -> Measured:
    """Check that Themis' mean over seeds is at most ``most`` times Gandiva's."""
    means = {policy: _mean(found, number) for policy, found in by.items()}
    here = means["themis"] / means["gandiva"]
    verdict = Verdict.HOLDS if here <= most else Verdict.FAILS
    reason = f"{what}, means over seeds: {_named(means, digits)}"
    return Measured(
        text=f"{here:.3f}", verdict=verdict, reason=reason, values=(here,), by_seed=_by_seed(by, number, what)
    )


def goal_without_floor(runs: ThemisRuns) -> Measured:
    """Check that Themis' mean worst ρ is the least on the workload without a floor."""
    by = runs.by_policy(runs.grid.simulated, POLICIES)
    if not by["themis"]:
        return NOT_RUN
    means = {policy: _mean(found, _worst) for policy, found in by.items()}
    least = min(means[policy] for policy in BASELINES)
    return Measured(
        text=f"{means['themis']:.2f}, others from {least:.2f}",
        verdict=Verdict.HOLDS if means["themis"] <= least else Verdict.FAILS,
        reason=f"worst ρ, means over seeds: {_named(means)}",
        values=tuple(means.values()),
        by_seed=_by_seed(by, _worst, "worst ρ"),
    )
