"""Regenerates the Python code of every ``.proto`` file in this folder.

Run as ``python -m eunomia_appmaster.protocol.generate [FOLDER]`` (needs the ``dev`` extra). The code is committed; a
test regenerates it into a temporary folder and compares.
"""

import os
import sys
from importlib import resources
from pathlib import Path

from eunomia.errors import EunomiaError

HERE = Path(__file__).parent
ROOT = HERE.parent.parent  # the folder from which `eunomia_appmaster` is imported


def generate(target: Path = ROOT) -> list[Path]:
    """Write ``_pb2.py``, ``_pb2.pyi`` and ``_pb2_grpc.py(i)`` for all protocols, below ``target``.

    Returns:
        The ``.proto`` files that were compiled.

    Raises:
        EunomiaError: the compiler found an error; it has printed the place.
    """
    from grpc_tools import protoc  # a tool of development only

    protocols = sorted(HERE.glob("*.proto"))
    own = resources.files("grpc_tools") / "_proto"
    _put_plugins_on_path()
    status = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{own}",
            f"--python_out={target}",
            f"--grpc_python_out={target}",
            f"--mypy_out=quiet:{target}",
            f"--mypy_grpc_out=quiet:{target}",
            *map(str, protocols),
        ]
    )
    if status != 0:
        raise EunomiaError("the protocol must compile", value=f"status {status}", place=str(HERE))
    return protocols


def _put_plugins_on_path() -> None:
    """Put this interpreter's scripts on PATH, so that protoc finds protoc-gen-mypy in an inactive environment."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
