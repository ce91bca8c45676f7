"""Checks a state folder: the journal and the workers' files, each on its own and against each other."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from eunomia_appmaster.journal_check.cluster import Cluster
from eunomia_appmaster.journal_check.containers import EPOCHS, Files, check_alone, read_containers, read_epochs
from eunomia_appmaster.journal_check.findings import Finding, Report, Rule
from eunomia_appmaster.journal_check.mark import check_mark, read_mark
from eunomia_appmaster.journal_check.reading import JournalStep, Rows, Saved, is_held
from eunomia_appmaster.journal_check.saved import begin_from, compare
from eunomia_appmaster.journal_check.slots import Slots
from eunomia_appmaster.journal_check.work import Work
from eunomia_appmaster.journal_check.workers import Workers

JOURNAL = "journal.sqlite"
CLOCK_SECONDS = 1.0
"""Seconds; after a longer backward jump of the machine's clock, times of files and journal are not compared."""


def check_folder(folder: Path, *, over: bool = False) -> Report:
    """Check a state folder, or a copy of one; nothing in it is changed.

    Args:
        folder: a folder with ``journal.sqlite``, and ``apps`` if workers ran; or the path of the journal itself.
        over: whether the run is over, so that an app that has not ended counts as lost.

    Raises:
        InputError: there is no journal, or one of an unknown version.
    """
    path = folder / JOURNAL if os.path.isdir(folder) else folder  # noqa: PTH112 - also under a name that no disk takes
    report = Report(running=is_held(path))
    mark = read_mark(path.parent)
    with Rows(path, lambda _: None) as rows:
        cluster = _cluster(rows, path, report)
    if cluster is None:
        with Rows(path, report.add) as rows:
            rows.check_pages()
            rows.check_values()
            check_mark(mark, rows, report.add)
        return report
    # The workers' files are read first: the orders that they carried out are then in the journal, which is read later.
    files = Files(containers=read_containers(path.parent, cluster), epochs=read_epochs(path.parent))
    with Rows(path, report.add) as rows:
        rows.check_pages()
        rows.check_values()
        check_mark(mark, rows, report.add)
        _Check(rows=rows, folder=path.parent, cluster=cluster, files=files, report=report).run(over=over)
    return report


def _cluster(rows: Rows, path: Path, report: Report) -> Cluster | None:
    layout = rows.meta("layout")
    if layout is None:
        if rows.last_number:
            what = "there are steps, but the layout of the machines is missing"
            report.add(Finding(rule=Rule.UNREADABLE, what=what, place="meta layout"))
        report.remarks.append("no machine has come yet")
        return None
    try:
        cluster = Cluster.read(layout)
        cluster.add_places(rows.notes("machine"))
        return cluster
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        report.add(
            Finding(rule=Rule.UNREADABLE, what=f"it does not say what the machines are: {error!r}", place="meta layout")
        )
        return None


@dataclass(slots=True, kw_only=True)
class _Check:
    """One check of a journal."""

    rows: Rows
    folder: Path
    cluster: Cluster
    files: Files
    report: Report
    _before: JournalStep | None = None
    _offer: int | None = None
    _first_epoch: int = 0
    _saved: list[Saved] = field(default_factory=list)

    def run(self, *, over: bool) -> None:
        note = self.report.add
        workers = Workers(note, self.folder, self.report.running, timed=not self._clock_went_back())
        containers = self.files.containers
        workers.add(containers)
        check_alone(containers, self.folder, note)
        work = Work(note)
        slots = Slots(self.cluster, work, workers, note)
        self._saved = list(self.rows.saved())
        self.report.checkpoints, self.report.containers = len(self._saved), len(containers)
        self._fold(slots, work)
        slots.finish()
        work.finish(over=over)
        # A lease that loses a promised slot with a machine continues under an epoch that no order names.
        workers.finish(slots.last_epoch if slots.machine_was_lost else self._first_epoch, slots.last_epoch)
        self._check_launcher(slots)
        self._check_end()
        self.report.orders = slots.orders
        self.report.apps = dict(work.ended) | ({"live": len(work.live)} if work.live else {})

    def _fold(self, slots: Slots, work: Work) -> None:
        begun = False
        for step in self.rows.steps():
            if not begun:
                begun = self._begin(step, slots, work)
            self._check_sequence(step)
            if begun:
                work.take(step)
                slots.take(step)
                work.check_divisions(step, {slot: hold.app for slot, hold in slots.held.items()})
                if slots.cluster_changed:
                    self._offer = None
                self._follow_offers(step)
                for saved in [saved for saved in self._saved if saved.after_step == step.number]:
                    compare(saved, step, slots, work, self._offer, self.report.add)
            self._before = step
            self.report.steps += 1

    def _begin(self, step: JournalStep, slots: Slots, work: Work) -> bool:
        """Return whether the replay can begin with this step: the first one, or one that follows a saved state."""
        self.report.first_step = self.report.first_step or step.number
        if step.number == 1:
            return True
        before = next((saved for saved in self._saved if saved.after_step == step.number - 1), None)
        if before is None:
            return False
        begin_from(before, slots, work, step.at)
        opened = before.state["open"]
        self._offer = None if opened is None else int(opened[0]["id"])
        self._first_epoch = slots.last_epoch
        self.report.remarks.append(f"steps up to {before.after_step} are not there: checked from its checkpoint on")
        return True

    def _check_sequence(self, step: JournalStep) -> None:
        before, place = self._before, f"step {step.number}"
        if before is None:
            if step.number != self.rows.dropped() + 1 and step.number != 1:
                self._find(Rule.STEPS, f"steps 1 to {step.number - 1} are missing", place, step)
        elif step.number != before.number + 1:
            self._find(Rule.STEPS, f"step {step.number} follows on step {before.number}", place, step)
        decided = step.decision
        if decided.get("now") != step.now:
            self._find(Rule.TIME_BACK, f"a decision of {decided.get('now')} s stands at {step.now} s", place, step)
        if before is not None and step.now < before.now:
            self._find(Rule.TIME_BACK, f"{step.now} s follows on {before.now} s", place, step)
        if before is not None and int(decided.get("version", 0)) <= int(before.decision.get("version", 0)):
            what = f"version {decided.get('version')} follows on {before.decision.get('version')}"
            self._find(Rule.TIME_BACK, what, place, step)
        self.report.last_step = step.number

    def _follow_offers(self, step: JournalStep) -> None:
        closed = step.decision.get("closed")
        if closed is not None:
            if closed != self._offer:
                what = f"offer {closed} is closed, but {self._offer or 'none'} was open"
                self._find(Rule.NO_SUCH_LEASE, what, f"step {step.number}", step)
            self._offer = None
        for offer in step.decision.get("offers", ()):
            self._offer = int(offer["id"])

    def _clock_went_back(self) -> bool:
        last = 0.0
        for number, at in self.rows.clock():
            if at < last - CLOCK_SECONDS:
                self.report.remarks.append(
                    f"the machine's clock went back by {last - at:.0f} s at step {number}: times of the workers' files "
                    f"are not compared with the journal's"
                )
                return True
            last = max(last, at)
        return False

    def _check_launcher(self, slots: Slots) -> None:
        """Check that the launcher has seen no epoch that the journal does not contain."""
        known = slots.last_epoch + (1 if slots.machine_was_lost else 0)  # a machine that comes back is fenced again
        for slot, epoch in self.files.epochs.items():
            if epoch > known:
                what = f"the launcher has heard of epoch {epoch}, but the journal's last is {known}"
                self.report.add(Finding(rule=Rule.UNJOURNALED_ORDER, what=what, place=str(EPOCHS), slot=slot))

    def _check_end(self) -> None:
        last = self.rows.last_number
        if last > self.report.last_step:
            what = f"step {last} was written, but the last one that is there is {self.report.last_step}"
            self.report.add(Finding(rule=Rule.STEPS, what=what, place=f"step {last}"))
        for saved in self._saved:
            if saved.after_step > last:
                what = f"it is of step {saved.after_step}, but the last step is {last}"
                place = f"checkpoint after step {saved.after_step}"
                self.report.add(Finding(rule=Rule.CHECKPOINT_DIFFERS, what=what, place=place))

    def _find(self, rule: Rule, what: str, place: str, step: JournalStep) -> None:
        self.report.add(Finding(rule=rule, what=what, place=place, at=(step.at,)))
