"""OEF (Middleware 2024): optimal efficiency with fairness on GPUs of several types.

The module ``speedups`` values each group of jobs by its speed on each GPU type. ``allocations`` contains the plugins of
the paper's programmes, which ``noncooperative``, ``cooperative`` and ``efficient`` solve, and ``specification`` states
them as the paper does. The refiner ``rounding`` turns shares of GPUs into whole GPUs.
"""
