"""OEF (Middleware 2024): optimal efficiency with fairness on GPUs of several types.

``speedups`` values each group of jobs by its speed on each GPU type; ``allocations`` are the paper's programmes, solved
by ``noncooperative``, ``cooperative`` and ``efficient``; ``specification`` states them as the paper does. The refiner
``rounding`` turns the shares of GPUs into whole GPUs.
"""
