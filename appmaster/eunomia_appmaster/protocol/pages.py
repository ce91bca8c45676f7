"""Sizes of lists of ended apps that only the journal has: they come in pages, which bounds the arbiter's memory."""

from typing import Final

PAGE: Final = 100
"""Most of these apps in one answer."""
MOST_LISTED: Final = 5000
"""Most of these apps in one list."""
