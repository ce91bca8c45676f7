"""Reads an address that no allocation holds, in a kernel: the driver reports an Xid, and CUDA an error."""

import sys

import torch

illegal = torch.cuda.jiterator._create_jit_fn("template <typename T> T illegal(T x) { return x + *((volatile T*)8); }")
try:
    illegal(torch.ones(16, device="cuda"))
    torch.cuda.synchronize()
except RuntimeError as error:
    print(str(error).splitlines()[0])
    sys.exit(3)
