"""A training program as somebody writes it with PyTorch alone: some layers, AdamW, random tokens."""
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--seq-len", type=int, default=1024)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--branch", action="store_true")
said = parser.parse_args()

torch.cuda.set_device(0)
model = torch.nn.Sequential(
    torch.nn.Embedding(8192, 1024),
    *[torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True) for _ in range(said.layers)],
    torch.nn.Linear(1024, 8192),
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(6):
    ids = torch.randint(0, 8192, (said.batch_size, said.seq_len), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    if said.branch and loss.item() > 2.0:
        print("a loss that is large")
    optimizer.step()
    optimizer.zero_grad()
