"""Tools that break a running system on purpose, for developers: no package holds them.

``kills`` ends processes of live runs, ``fuzz`` sends hostile messages, ``crash_points`` stops the arbiter and the app
masters at every write and message of a run, and ``damage`` damages a journal. Each is a command, run from the root of
the repository: ``PYTHONPATH=tests python -m chaos.kills``, or ``make kills``.
"""
