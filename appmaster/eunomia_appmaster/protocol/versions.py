"""The version of the protocol, which two processes must share to communicate."""

import sys
from typing import Final

from eunomia import __version__

PROTOCOL: Final = 3
"""Version of the protocol between arbiter and launchers; each change that older processes cannot handle
increases it."""
VERSION: Final = __version__
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
