"""The log of a run as columns, from a simulation or a journal.

``log`` defines the columns, ``tables`` makes the result tables from them. ``metrics.simulated_log`` fills them from a
simulation, ``live_runs.live_log`` from a journal and the files of app masters.
"""
