"""The elasticity ``shockwave_forecast``: forecast the regimes of jobs that change their batch size (Shockwave, §5)."""
