"""Replays apps and jobs from the journal's events: no app or job may be lost, and gangs have allowed sizes."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from eunomia_appmaster.journal_check.findings import AddFinding, Finding, Rule
from eunomia_appmaster.journal_check.reading import JournalStep


@dataclass(slots=True)
class Work:
    """The replay of apps and jobs.

    Attributes:
        live: Unix time in seconds and step number of the arrival, by app that has arrived and not ended.
        ended: number of apps by outcome.
        whole: whether the journal was read from its first step on, so that every app's arrival was seen.
    """

    note: AddFinding
    whole: bool = True
    live: dict[str, tuple[float, int]] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    _jobs: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """The app, the smallest and the largest number of slots of a live job, by job."""
    _over: set[str] = field(default_factory=set)
    _place: str = ""
    _at: float = 0.0

    def take(self, step: JournalStep) -> None:
        """Replay one step."""
        self._place, self._at = f"step {step.number}", step.at
        for event in step.events:
            match event["is"]:
                case "AppFinished":
                    self._end(str(event["app"]), "failed" if event.get("failed") else "finished")
                case "AppCancelled":
                    self._end(str(event["app"]), "cancelled")
                case "JobFinished":
                    self._jobs.pop(event["job"], None)
                case "JobFailed" if event.get("again_in") is None:
                    self._jobs.pop(event["job"], None)
                case _:
                    pass
        for event in step.events:
            if event["is"] == "AppArrived" and event["app"] not in self.live:
                self.live[str(event["app"])] = step.at, step.number
                self._over.discard(str(event["app"]))
            elif event["is"] == "JobAdded":
                sizes = int(event.get("least", 1)), int(event.get("most", 1))
                self._jobs.setdefault(str(event["job"]), (str(event["app"]), *sizes))

    def check_divisions(self, step: JournalStep, holders: dict[int, str]) -> None:
        """Check the tuners' divisions of slots against the sizes of jobs and the holders of slots.

        Args:
            step: the step with the divisions.
            holders: the app of each held slot.
        """
        refused = [str(fault.get("what", "")) for fault in step.decision.get("faults", ()) if not fault.get("stage")]
        for event in step.events:
            if event["is"] != "JobsDivided":
                continue
            app = str(event["app"])
            if any(app in what for what in refused):
                continue
            for job, slots in zip(event["jobs"], event["gpus"], strict=False):
                self._check_size(str(job), len(slots), "the tuner puts it")
                for slot in slots:
                    if holders.get(slot, app) != app:
                        what = f"{job} is put on slot {slot}, which {holders[slot]} holds"
                        self._find(Rule.HELD_TWICE, what, app, slot)
            named = Counter(slot for slots in event["gpus"] for slot in slots)
            for slot in (slot for slot, times in named.items() if times > 1):
                self._find(Rule.HELD_TWICE, f"two jobs of {app} are put on slot {slot}", app, slot)

    def check_start(self, order: dict[str, Any], place: str, at: float) -> None:
        """Check that a start order is for a live app and a complete gang."""
        self._place, self._at = place, at
        app, job = str(order["app"]), order["job"]
        if app not in self.live and (self.whole or app in self._over):
            was = "has ended" if app in self._over else "never arrived"
            self._find(Rule.NO_SUCH_LEASE, f"lease {order['lease']} begins for {app}, which {was}", app)
        if job is not None:
            self._check_size(str(job), len(order["gpus"]), f"lease {order['lease']} puts it")

    def check_measured(self, order: dict[str, Any], size: int, place: str, at: float) -> None:
        """Check that a measurement order has a size that the job allows."""
        self._place, self._at = place, at
        self._check_size(str(order["job"]), size, f"lease {order['lease']} measures it")

    def finish(self, *, over: bool) -> None:
        """Check the apps at the journal's end; with ``over``, no app may be live."""
        for app, (at, number) in self.live.items() if over else ():
            what = f"{app} arrived, and neither finished nor failed nor was cancelled"
            self.note(Finding(rule=Rule.APP_LOST, what=what, place=f"step {number}", app=app, at=(at,)))

    def _end(self, app: str, how: str) -> None:
        if self.live.pop(app, None) is not None or (not self.whole and app not in self._over):
            self.ended[how] += 1
            self._over.add(app)
            self._jobs = {job: known for job, known in self._jobs.items() if known[0] != app}

    def _check_size(self, job: str, size: int, who: str) -> None:
        app, least, most = self._jobs.get(job, ("", 0, size))
        if not least <= size <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            self._find(Rule.GANG_IN_PART, f"{job} takes {wanted} slots, but {who} on {size}", app)

    def _find(self, rule: Rule, what: str, app: str, slot: int | None = None) -> None:
        self.note(Finding(rule=rule, what=what, place=self._place, app=app, slot=slot, at=(self._at,)))
