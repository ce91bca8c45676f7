"""Gavel's family (OSDI'20): policies as optimization programmes over time shares, and the rounds that realize them."""
