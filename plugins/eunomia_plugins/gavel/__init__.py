"""Gavel's family (OSDI'20): policies as programmes over shares of time, and the rounds that serve them."""
