"""Carries out decisions: the processes on each GPU, the costs of orders, and the answers to them."""
