"""Forecasts of the regimes of jobs that change their batch size (Shockwave, §5): elasticity ``shockwave_forecast``."""
