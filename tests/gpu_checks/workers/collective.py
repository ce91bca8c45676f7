"""One rank of a group: all-reduce, broadcast and all-gather of tensors on a device, compared with the right ones."""

import argparse
import datetime

import torch
from torch import distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--backend", required=True)
parser.add_argument("--device", required=True)
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--world", type=int, required=True)
parser.add_argument("--store", required=True)
args = parser.parse_args()

if args.device == "cuda":
    torch.cuda.set_device(0)
limit = datetime.timedelta(seconds=60)
dist.init_process_group(
    args.backend, init_method=f"file://{args.store}", rank=args.rank, world_size=args.world, timeout=limit
)
mine = torch.arange(1 << 16, dtype=torch.float32, device=args.device) + args.rank
total = mine.clone()
dist.all_reduce(total)
right = args.world * (mine - args.rank) + sum(range(args.world))
assert torch.equal(total, right), "all_reduce"
first = mine.clone()
dist.broadcast(first, src=0)
assert torch.equal(first, mine - args.rank), "broadcast"
if args.backend == "nccl":  # gloo gathers no CUDA tensors
    parts = [torch.empty_like(mine) for _ in range(args.world)]
    dist.all_gather(parts, mine)
    assert torch.equal(parts[args.rank], mine), "all_gather"
dist.barrier()
print(f"rank {args.rank} of {args.world}: {args.backend}, {total.device}")
dist.destroy_process_group()
