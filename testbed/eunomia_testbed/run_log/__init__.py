"""The log of a run as columns, which are filled from a simulation or from an arbiter's journal.

``log`` defines the columns, ``tables`` makes result tables from them. ``metrics.simulated_log`` fills them from a
simulation, ``live_runs.live_log`` from a journal and the files of app masters.
"""
