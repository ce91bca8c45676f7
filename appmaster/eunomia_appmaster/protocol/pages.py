"""Page sizes for ended apps that only the journal has, which are listed in pages to bound the arbiter's memory."""

from typing import Final

PAGE: Final = 100
"""Most of these apps in one answer, that is, one page."""
MOST_LISTED: Final = 5000
"""Most of these apps in the whole list."""
