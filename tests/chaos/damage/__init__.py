"""Damages a journal at random, and looks at what becomes of it: refused, harmless, one app lost, or silent."""
