"""Carries out decisions: the processes on each GPU, what orders cost, and their answers."""
