"""What two processes must have in common to speak with each other."""

import sys
from typing import Final

from eunomia import __version__

PROTOCOL: Final = 3
"""Of arbiter and launchers; another number with each change that an older side would not bear."""
VERSION: Final = __version__
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
