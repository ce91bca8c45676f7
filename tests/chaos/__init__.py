"""Tools that break a running system on purpose, for developers: no package holds them.

``kills`` ends processes of live runs at moments that hurt, ``storms`` kills, ends and stops every kind of process,
alone and together, ``soak`` looks for what grows under arrivals, kills and cancels, ``fuzz`` sends hostile messages,
``crash_points`` stops the arbiter and the app masters at every write and message of a run, ``histories`` holds random
histories of clusters that change against the rules, and ``damage`` damages a journal and every other file of a state
folder. Each is a command, run from the root of the repository: ``PYTHONPATH=tests python -m chaos.kills``, or
``make kills``.
"""
