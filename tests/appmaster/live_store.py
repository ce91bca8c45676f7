"""The process of a live job's store: prints its port, and serves until it is killed. Not a test."""

import signal
import sys

from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
sys.stdout.write(f"{store.port}\n")
sys.stdout.flush()
signal.pause()
