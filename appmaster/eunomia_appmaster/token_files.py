"""Token files: reads them, and explains why the arbiter refuses a token."""

from pathlib import Path

from eunomia.errors import InputError

TOKEN_CURE = (
    "`--state-dir` of its eunomia serve finds it, in Python state_dir= of Client, or EUNOMIA_TOKEN_FILE names a copy"
)


class TokenError(InputError):
    """A token file cannot be read or contains no token, or the arbiter refuses the token."""


def token_fault(file: Path, address: str) -> TokenError:
    """Return an error that explains why the arbiter refused a file's token."""
    try:
        token = file.read_bytes().strip()
    except FileNotFoundError:
        return TokenError(f"the file of a token must be there ({TOKEN_CURE})", value="no such file", place=str(file))
    except OSError as error:
        rule = f"the file of a token must be readable ({TOKEN_CURE})"
        return TokenError(rule, value=error.strerror or str(error), place=str(file))
    if not token:
        return TokenError(f"the file of a token must hold one ({TOKEN_CURE})", value="an empty file", place=str(file))
    whose = "its operator's, or the last one that the operator made for a user"
    rule = f"a token must be one that the arbiter at {address} takes: {whose} ({TOKEN_CURE})"
    return TokenError(rule, value="another one", place=str(file))


def read_token(path: Path) -> str:
    """Return the token in a file; empty if it cannot be read, or contains none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
