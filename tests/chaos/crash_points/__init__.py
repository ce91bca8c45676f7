"""Crash points by enumeration: arbiter, app masters and launchers stopped after every write and message of a run.

The real service, driver, journal, launcher tracker and app masters run in one process under a virtual clock; only
worker processes and the network between are stood in for. A run is deterministic, so the k-th write or message is the
same one each time: one run notes them all, and then one run each stops the process at one of them, starts it again from
its files, and is held to the same end.
"""
