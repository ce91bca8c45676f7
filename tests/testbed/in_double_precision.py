"""Runs a training program in double precision, in which a training can be compared with one of other additions.

Not a test. Arguments: the program's script and its arguments.
"""

import runpy
import sys

import torch

torch.set_default_dtype(torch.float64)
torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
