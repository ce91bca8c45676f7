"""The height problem of Syne Tune's examples: a metric that falls with each epoch, and a checkpoint after each."""

import argparse
import json
import time
from pathlib import Path

from syne_tune import Reporter

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--width", type=float)
parser.add_argument("--height", type=float)
parser.add_argument("--st_checkpoint_dir", type=Path)
args = parser.parse_args()

report = Reporter()
checkpoint = args.st_checkpoint_dir / "epoch.json"
checkpoint.parent.mkdir(parents=True, exist_ok=True)
done = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
for epoch in range(done + 1, args.epochs + 1):
    time.sleep(0.5)
    report(epoch=epoch, mean_loss=1 / (0.1 + args.width * epoch / 100) + args.height * 0.1)
    new = checkpoint.with_suffix(".new")
    new.write_text(json.dumps(epoch))
    new.rename(checkpoint)  # never half a file, whenever the trial must leave its slot
