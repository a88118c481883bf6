"""Modules of one's own for recorder_test.py; each function is one that `zeroplan trace --code` calls."""

import torch
from torch import nn

WIDTH, LAYERS = 64, 2


class Twice(torch.autograd.Function):
    """A function whose backward pass is its own."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Layer(nn.Module):
    """`way` is the operation that the layer applies to the output of its linear module."""

    def __init__(self, way):
        super().__init__()
        self.way, self.linear = way, nn.Linear(WIDTH, WIDTH)

    def forward(self, x, bias):
        return self.way(self.linear(x), bias)


class Model(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.embed, self.head = nn.Embedding(128, WIDTH), nn.Linear(WIDTH, 1)
        self.layers = nn.ModuleList([Layer(way) for _ in range(LAYERS)])

    def forward(self, input_ids):
        x = self.embed(input_ids)
        bias = self.head.weight * 2
        for layer in self.layers:
            x = layer(x, bias)
            x = x[0] if isinstance(x, tuple) else x
        return self.head(x).mean()


def _of(way):
    return Model(way).to(torch.bfloat16), lambda batch, sequence: {"input_ids": torch.ones(batch, sequence, dtype=torch.int64)}


def own_gradient():
    return _of(lambda x, bias: Twice.apply(x) + bias)


def own_gradient_nowhere_needed():
    return _of(lambda x, bias: x + Twice.apply(bias.detach()))


def same_view():
    """Each layer reads a row of a tensor that the model made, by a view of the same place as the last layer's."""
    return _of(lambda x, bias: x + bias[0].view(WIDTH))


def returned_view():
    """A layer returns a view of what it computed last."""
    return _of(lambda x, bias: (x + bias).flatten(0, 1).view(x.shape))


def pairs():
    """A layer hands on its keys and values beside its states, heads and batch in one dimension."""
    return _of(lambda x, bias: (x + bias, (x.transpose(1, 2), x * 2)))


def changed_in_place():
    """A view of a tensor that was changed in place."""

    def way(x, bias):
        x = x * 2
        x += bias
        return x[:, :, : WIDTH // 2].repeat(1, 1, 2)

    return _of(way)
