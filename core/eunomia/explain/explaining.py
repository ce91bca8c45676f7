"""Explain why a job waits: a sentence with numbers, the events that would let it start, and its likely start.

The explanation combines the job's last verdict, the answer of the plugin that gave it, and dry runs on copies of the
state (see ``Trials``), so that every remedy it names has been tried.
"""

import math
from collections.abc import Mapping, Sequence

import structlog

from eunomia.contract.decisions import Decision
from eunomia.contract.explanations import Explanation
from eunomia.contract.stages import Stages
from eunomia.contract.verdicts import Reason
from eunomia.explain.facts import Facts, facts_of, usable_gpus
from eunomia.explain.measuring import measuring
from eunomia.explain.reasons import SENTENCES
from eunomia.explain.remedies import NOTHING_FREES, Remedies, Remedy
from eunomia.explain.what_if import Trials
from eunomia.model.cluster import Cluster
from eunomia.model.leases import LeaseState
from eunomia.model.shapes import value
from eunomia.model.workload import JobState
from eunomia.round.arbiter import Arbiter
from eunomia.round.show import show
from eunomia.store.state import STAGES
from eunomia.units import NONE, AppId, JobId, Seconds, Stage

log = structlog.get_logger()

PART_OF_WAITS = 0.9
_AWAITS_ITS_APP = (Reason.PAUSED_BY_APP, Reason.SUSPENDED)
BY_CORE = (*_AWAITS_ITS_APP, Reason.BACKING_OFF, Reason.GPU_HOURS, Reason.AWAITING_RELEASE)
"""Reasons that follow from events alone and take precedence over earlier verdicts of plugins."""


@value
class Why:
    """The explanation of why a job waits."""

    job: JobId
    app: AppId
    state: str
    """The name of the job's ``JobState``, in lower case."""
    seconds: float
    """Seconds for which the job has been in that state."""
    reason: Reason | None
    """Reason for which the job waits; None if it does not wait."""
    stage: Stage | None
    plugin: str
    """Name of the plugin that gave the reason; empty if the arbiter did."""
    round: int
    said_seconds_ago: float
    sentence: str
    """The reason as a sentence with numbers; for a job that measures its rate, the GPUs of the measurement."""
    said: str
    """The text of the plugin's explanation; empty if the plugin gave none."""
    numbers: Mapping[str, float]
    frees: tuple[Remedy, ...]
    starts_in: tuple[float, float] | None
    """Seconds from now, earliest and latest; None: not known."""

    @property
    def text(self) -> str:
        """Return the sentence followed by the plugin's text; for an auction, the plugin's text alone."""
        if self.said and self.reason in _AUCTIONED:
            return self.said
        return " ".join(filter(None, (self.sentence, self.said)))


_AUCTIONED = (Reason.NOT_OFFERED, Reason.OUTBID, Reason.HELD_BACK)


def explain(
    arbiter: Arbiter,
    job: JobId,
    *,
    stages: Stages,
    fallback: Stages | None = None,
    rounds: Sequence[Decision] = (),
    now: Seconds | None = None,
) -> Why:
    """Explain why a job of an arbiter waits, without changing the arbiter.

    Args:
        arbiter: the arbiter of the job.
        job: id of the job, waiting or not.
        stages: stages of the chosen profile, created for this call, so that no live stage caches a trial's state.
        fallback: stages of the fallback profile, likewise created for this call; None: use ``stages``.
        rounds: the last decisions that made a round, oldest first.
        now: time of the explanation in seconds; None: the time of the last step.

    Raises:
        KeyError: the arbiter has no such job.
    """
    moment = Seconds(max(arbiter.state.now, arbiter.state.now if now is None else now))
    return Explainer(arbiter.save(), arbiter.state.cluster, stages, fallback or stages, rounds, moment).explain(job)


class Explainer:
    """Explains jobs as of one moment, from a saved state of the arbiter; no argument is changed.

    Args:
        saved: the bytes returned by ``Arbiter.save``.
        cluster: the cluster of that arbiter.
        stages: see ``explain``.
        fallback: see ``explain``.
        rounds: see ``explain``.
        now: time of the explanation in seconds.
    """

    def __init__(
        self, saved: bytes, cluster: Cluster, stages: Stages, fallback: Stages, rounds: Sequence[Decision], now: Seconds
    ) -> None:
        self.now = now
        self.rounds = tuple(rounds)
        self.trials = Trials(saved, cluster, stages, fallback, now)
        self._forecasts = stages.names.get(Stage.ELASTICITY, "") in stages.explain

    def explain(self, job: JobId) -> Why:
        """Explain one job; see the function ``explain``."""
        return _Case(self, job).why()

    def forecast(self, job: JobId) -> Explanation | None:
        """Return the elasticity's explanation of a running or waiting job, or None if the elasticity gives none.

        Raises:
            KeyError: the arbiter has no such job.
        """
        return _Case(self, job).forecast() if self._forecasts and self.rounds else None


class _Case:
    """One job's explanation in progress, with a copy of the state for lookups."""

    def __init__(self, all_of_it: Explainer, job: JobId) -> None:
        self.trials, self.rounds, self.now = all_of_it.trials, all_of_it.rounds, all_of_it.now
        self.arbiter = all_of_it.trials.copy()
        self.state = self.arbiter.state
        self.state.counters.contention_area += max(0.0, self.now - self.state.now) * self.state.owners.present
        self.state.now = max(self.state.now, self.now)
        if self.state.job_row(job) == NONE:
            raise KeyError(job)
        self.job, self.row = job, self.state.job_row(job)
        self.app_row = int(self.state.jobs.live.app[self.row])
        self.app = self.state.app_id(self.app_row)
        self.kind = JobState(int(self.state.jobs.live.state[self.row]))
        self.reason = self._reason()

    def why(self) -> Why:
        kept = self.state.jobs.live
        core = self.reason in BY_CORE or self.reason is None
        stage = None if core or int(kept.stage[self.row]) < 0 else STAGES[int(kept.stage[self.row])]
        plugin = "" if core else list(self.state.names.plugins)[self.state.jobs.cells.plugin[self.row]]
        facts = facts_of(self.arbiter, self.row, self.reason, self._decision())
        said = self._said(plugin, facts)
        remedies = Remedies(self.arbiter, self.trials, self.job, facts)
        frees = remedies.listed(() if said is None else said.frees)
        starts, more = self._starts(remedies, frees, said)
        return Why(
            job=self.job,
            app=self.app,
            state=self.kind.name.lower(),
            seconds=self._seconds(),
            reason=self.reason,
            stage=stage,
            plugin=plugin,
            round=int(kept.verdict_round[self.row]),
            said_seconds_ago=max(0.0, float(self.now - kept.verdict_at[self.row])),
            sentence=measuring(self.arbiter.view, self.row, self.now)
            if self.reason is None
            else facts.sentence(SENTENCES[self.reason]),
            said="" if said is None else said.text,
            numbers={} if self.reason is None else self._numbers(facts, said) | more,
            frees=frees,
            starts_in=starts,
        )

    def forecast(self) -> Explanation | None:
        """Return the elasticity's explanation of the job."""
        return self._asked(self.arbiter.serving.names.get(Stage.ELASTICITY, ""), self.rounds[-1])

    # --- the present state -----------------------------------------------------------------------------------------

    def _reason(self) -> Reason | None:
        if self.kind is JobState.STARTING:
            lease = self.state.leases.get(int(self.state.jobs.live.lease[self.row]))
            return Reason.AWAITING_RELEASE if lease is not None and lease.state is LeaseState.PENDING else None
        if self.kind not in (JobState.WAITING, JobState.PAUSED):
            return None
        reason = self.state.reason(self.row) or Reason.AWAITING_ROUND
        # A round without free GPUs gives no verdicts, so a job that is too large for the cluster may have none.
        return Reason.NO_SIZE_FITS if reason is Reason.AWAITING_ROUND and self._is_too_large() else reason

    def _is_too_large(self) -> bool:
        """Return whether the job waits and needs more GPUs of its type than are in service and not draining."""
        least, kind = int(self.state.jobs.live.least[self.row]), int(self.state.jobs.live.gpu_type[self.row])
        is_known = self.kind is JobState.WAITING and kind >= NONE
        return is_known and least > int(usable_gpus(self.state, kind).sum())

    def _seconds(self) -> float:
        """Return for how many seconds the job has been in its present state."""
        jobs, row = self.state.jobs.live, self.row
        since = float(jobs.verdict_at[row])
        if self.kind is JobState.RUNNING:
            since = float(jobs.since[row])
        elif self.kind is JobState.WAITING:
            # Verdicts change while the job waits: it has waited since its last run, or since its arrival.
            ran = float(self.state.job_ledger.last_ran[row])
            since = float(jobs.arrived[row]) if math.isnan(ran) else ran
        return max(0.0, float(self.now) - since) if math.isfinite(since) else 0.0

    def _decision(self) -> Decision | None:
        """Return the decision of the round that gave the verdict; with auctions, the decision that closed the offer."""
        number = int(self.state.jobs.live.verdict_round[self.row])
        return next((made for made in reversed(self.rounds) if made.round == number), None)

    def _said(self, plugin: str, facts: Facts) -> Explanation | None:
        """Join the explanations by the verdict's plugin, the valuation if its order decided, and the elasticity."""
        names = self.arbiter.serving.names
        asked = [plugin] if plugin else []
        if self.reason is Reason.OUTRANKED and facts.place is not None:
            asked.append(names.get(Stage.VALUATION, ""))
        asked.append(names.get(Stage.ELASTICITY, ""))
        answers = [said for name in dict.fromkeys(asked) if (said := self._asked(name, self._decision())) is not None]
        if not answers:
            return None
        return Explanation(
            text=" ".join(said.text for said in answers),
            numbers={name: number for said in answers for name, number in said.numbers.items()},
            frees=tuple(remedy for said in answers for remedy in said.frees),
            starts_in=next((said.starts_in for said in answers if said.starts_in is not None), None),
        )

    def _asked(self, plugin: str, decision: Decision | None) -> Explanation | None:
        call = self.arbiter.serving.explain.get(plugin)
        if call is None or decision is None:
            return None
        try:
            said = call(show(self.state), decision, self.job)
        except Exception as error:  # a plugin's fault must not prevent the explanation
            log.warning("explain.failed", plugin=plugin, why=f"{type(error).__name__}: {error}")
            return None
        return said if isinstance(said, Explanation) else None

    def _numbers(self, facts: Facts, said: Explanation | None) -> dict[str, float]:
        own = {} if said is None else {name: float(number) for name, number in said.numbers.items()}
        return facts.numbers() | own

    # --- the likely start ------------------------------------------------------------------------------------------

    def _starts(
        self, remedies: Remedies, frees: Sequence[Remedy], said: Explanation | None
    ) -> tuple[tuple[float, float] | None, dict[str, float]]:
        """Estimate when the job starts: return the earliest and latest time, and the numbers behind the estimate."""
        planned = self.state.reports.starts_at.get(self.row, math.nan)
        if self.reason in (None, *_AWAITS_ITS_APP) or frees[:1] == NOTHING_FREES:
            return None, {}
        if self.reason is Reason.AWAITING_RELEASE:
            latest = max((remedy.in_seconds or 0.0 for remedy in frees), default=0.0)
            return (0.0, latest), {}
        if planned >= self.now:
            return (float(planned - self.now),) * 2, {}
        if said is not None and said.starts_in is not None:
            return said.starts_in, {}
        if remedies.ahead is not None:
            latest = max(0.0, float(remedies.ahead.at - self.now))
            sooner = [remedy.in_seconds for remedy in frees if remedy.in_seconds is not None and remedy.what != "text"]
            rounds = {"rounds_to_wait": float(max(0, remedies.ahead.round - self.state.counters.round))}
            return (min([latest, *sooner]), latest), rounds
        return (None, {}) if self.reason is Reason.NO_SIZE_FITS else self._from_past()

    def _from_past(self) -> tuple[tuple[float, float] | None, dict[str, float]]:
        """Estimate the latest start from the 90th percentile of the app's past waits in rounds."""
        waits = sorted(past_waits(self.rounds, self.app))
        times = [float(made.now) for made in self.rounds]
        if len(waits) < 3 or len(times) < 2 or times[-1] <= times[0]:
            return None, {}
        within = waits[math.ceil(PART_OF_WAITS * len(waits)) - 1]
        ended = sum(wait <= within for wait in waits)
        interval = (times[-1] - times[0]) / (len(times) - 1)
        numbers = {"past_waits": float(len(waits)), "past_waits_within": float(ended), "past_rounds": float(within)}
        return (0.0, within * interval), numbers


def past_waits(rounds: Sequence[Decision], app: AppId) -> list[int]:
    """Return the lengths, in rounds, of all waits of an app's jobs that began and ended within these decisions."""
    began: dict[str, int] = {}
    waits: list[int] = []
    for made in rounds:
        for order in made.transitions:
            if not order.kind.effect.starts or order.app != app:
                continue
            ended = list(began) if order.job is None else [str(order.job)]
            first = [began.pop(job) for job in ended if job in began]
            waits += [made.round - min(first)] if first else []
        for said in made.waiting:
            if said.reason is not None and said.job.rpartition("/")[0] in (app, ""):
                began.setdefault(str(said.job), made.round)
    return waits
