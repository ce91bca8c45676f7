"""Gangs that grow and shrink without a restart (``elastic = "live"``).

``gang`` drives the state machine of ``training.changes`` over ``rendezvous`` (the store outside of the workers) and
``groups`` (torch's process groups, one a generation). ``model`` keeps the script's model one object, ``transfer`` gives
newcomers the state, ``swap`` changes what a run has for one generation.
"""
