"""Says whether a journal and the workers' own files tell of anything that must never be.

It shares no code with the arbiter, so that an error there is not made here again: it reads SQLite and JSON itself, and
folds who held what in a way of its own. What it reads is described in docs/reference/journal.md.
"""

from eunomia_appmaster.journal_check.check import check_folder
from eunomia_appmaster.journal_check.findings import Finding, Report, Rule

__all__ = ["Finding", "Report", "Rule", "check_folder"]
