"""The result folder of a run: typed tables, and the facts needed to repeat the run.

``tables`` declares the tables, ``ResultFolder`` writes them, ``RunData`` reads them, ``summarise`` computes summaries.
"""

from eunomia_testbed.results.facts import InputFile, RunFacts, sha256_of
from eunomia_testbed.results.folder import ResultFolder, new_folder_name
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import summarise

__all__ = ["InputFile", "ResultFolder", "RunData", "RunFacts", "new_folder_name", "sha256_of", "summarise"]
