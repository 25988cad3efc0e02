#!/usr/bin/env python3
"""training: a model that two processes or more train together, by PyTorch's DistributedDataParallel over gloo.

training.py RANK RANKS OWN_ADDRESS FIRST_ADDRESS PORT EPOCHS WIDTH

Each rank is started with its number and address; rank 0 keeps the store at which all meet. The model is a perceptron of
four layers, each WIDTH wide; each rank has its own half of the examples. All random numbers have a seed, so the losses
are the same whatever carries the gradients, and a byte that is wrong changes them. gloo and the store use sockets only.

Rank 0 prints "training" before the first epoch, and in the end one JSON object: seconds of each epoch, the loss of each
as a hexadecimal number, a SHA-256 of the parameters, their bytes, and whether all ranks have the same parameters.
"""
import hashlib
import json
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 8
BATCH = 32
TIMEOUT = timedelta(seconds=60)


def group_of(rank, ranks, own, first, port):
    """Ranks that reach each other by these addresses alone."""
    store = dist.TCPStore(first, port, ranks, rank == 0, TIMEOUT)
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=own)]
    options._timeout = TIMEOUT
    return dist.ProcessGroupGloo(store, rank, ranks, options)


def model_of(width):
    layers = []
    for _ in range(3):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))


def digest_of(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def main():
    rank, ranks, own, first, port, epochs, width = sys.argv[1:]
    rank, ranks, port, epochs, width = (int(word) for word in (rank, ranks, port, epochs, width))
    torch.set_num_threads(1)
    group = group_of(rank, ranks, own, first, port)
    torch.manual_seed(4711)
    # Gradients go in buckets while later layers are still computed, as DistributedDataParallel has it.
    model = DistributedDataParallel(model_of(width), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(100 + rank)
    examples = torch.randn(STEPS, BATCH, width)
    answers = examples.sum(dim=2, keepdim=True).sign()
    losses, seconds = [], []
    group.barrier().wait()
    if rank == 0:
        print("training", flush=True)
    for _ in range(epochs):
        begun, total = time.monotonic(), torch.zeros(1, dtype=torch.float64)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(examples[step]), answers[step])
            loss.backward()
            optimizer.step()
            total += loss.detach().double()
        # The loss over the examples of all ranks.
        group.allreduce([total]).wait()
        seconds.append(time.monotonic() - begun)
        losses.append((total.item() / STEPS / ranks).hex())
    own_digest = digest_of(model)
    others = torch.tensor(list(bytes.fromhex(own_digest)), dtype=torch.int64)
    group.allreduce([others]).wait()
    same = others.tolist() == [ranks * byte for byte in bytes.fromhex(own_digest)]
    if rank == 0:
        size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        result = {"seconds": seconds, "losses": losses, "digest": own_digest, "bytes": size, "same": same}
        print(json.dumps(result), flush=True)
    # No rank goes while another one still waits for it.
    group.barrier().wait()


main()
