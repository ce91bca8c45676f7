"""Checks a journal and the workers' own files for violated invariants.

It shares no code with the arbiter, so that it does not repeat the arbiter's errors: it reads SQLite and JSON itself,
and replays the holder of each slot with its own code. Only the kinds of orders and their effects are shared. Its input
is described in docs/reference/journal.md.
"""

from eunomia_appmaster.journal_check.check import check_folder
from eunomia_appmaster.journal_check.findings import Finding, Report, Rule

__all__ = ["Finding", "Report", "Rule", "check_folder"]
