"""Random histories of clusters that change: every step keeps the arbiter's rules, and the checker agrees with it.

Jobs arrive, run, fail and end while machines join, drain, are kept, leave, are lost and come back: with more slots,
with fewer, with another type. Each history is driven through an arbiter; ``check_state`` looks after each step, and the
journal of it is held against the arbiter by ``eunomia journal check``, with checkpoints along the way.
"""
