"""Page sizes for ended apps that only the journal has, which are listed in pages to bound the arbiter's memory."""

from typing import Final

PAGE: Final = 100
"""Maximum number of these apps in one answer (a page)."""
MOST_LISTED: Final = 5000
"""Maximum number of these apps in the whole list."""
