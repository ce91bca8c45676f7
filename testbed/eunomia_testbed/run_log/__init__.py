"""The log of a run as columns, filled from a simulation or from a journal.

``log`` defines the columns, ``tables`` makes result tables from them. ``metrics.simulated_log`` fills them from a
simulation, ``live_runs.live_log`` from a journal and the files of app masters.
"""
