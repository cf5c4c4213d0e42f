"""The confidence of a model over a data set of any size, on one process or many, in 100 kB of
memory.

    python examples/stream.py
    torchrun --nproc-per-node 2 examples/stream.py       # the same numbers from two processes

Here the "model" is a random linear map and the data are drawn on the fly; put your own loader and
model in their place."""

import os

import torch

import maccal as mc

ROWS, CLASSES, BATCH = 200_000, 10, 1000
rank = int(os.environ.get("RANK", 0))  # torchrun sets both
world = int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    torch.distributed.init_process_group("gloo")

total = mc.Stream.empty()
for start in range(rank * BATCH, ROWS, world * BATCH):  # every rank takes its own batches
    generator = torch.Generator().manual_seed(start)
    logits = 2 * torch.randn(BATCH, CLASSES, generator=generator)
    # so the logits are calibrated ...
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    total += mc.Stream.of(logits=1.5 * logits, labels=labels)  # ... and these are too sharp

if world > 1:
    total = total.all_reduce()
if rank == 0:
    print(total.summary(interval=True))
if world > 1:
    torch.distributed.destroy_process_group()
