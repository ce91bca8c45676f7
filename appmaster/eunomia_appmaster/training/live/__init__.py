"""Gangs that grow and shrink without a restart (``elastic = "live"``).

``gang`` drives the state machine of ``training.changes`` over ``rendezvous`` (the store outside of the workers) and
``groups`` (torch's process groups, one per generation). ``model`` keeps the script's model object across generations,
``transfer`` sends the state to newcomers, ``swap`` adapts the rest of a run to a new generation.
"""
