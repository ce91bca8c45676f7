"""Holds memory on a device until it is ended, and says so by a file."""

import argparse
import signal
import sys
import time
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--mib", type=int, default=1024)
parser.add_argument("--file", type=Path, required=True)
args = parser.parse_args()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
held = torch.ones(args.mib << 20, dtype=torch.uint8, device=args.device)
args.file.write_text(str(held.numel()))
while True:
    held.add_(1)
    time.sleep(0.05)
