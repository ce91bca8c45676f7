"""Learning curves of real trainings, recorded once, on which tuners are measured."""
