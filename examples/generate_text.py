# SPDX-License-Identifier: Apache-2.0
"""Generate tokens with a decoder that keeps its keys and values in a cache.

    python examples/generate_text.py --tokens 32 --minutes 1

A small decoder with random weights writes each token's keys and values into buffers. A compiled
model has no state: the buffers are its last inputs, their new values its last outputs, and the loop
hands them on. The tokens are compared with PyTorch's.
"""

import argparse

import numpy as np
import torch

from tvm_droplet_ms import tune

HEAD = 32
"""The width of a head of the attention."""


class Layer(torch.nn.Module):
    """Attention to a cache of all tokens so far, and two dense layers."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs, self.output = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.reshape(1, 1, self.heads, -1).transpose(1, 2)
            for part in self.inputs(self.norms[0](x)).chunk(3, -1)
        )
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        is_seen = torch.arange(self.keys.shape[2]) <= position
        found = torch.nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, is_seen[None, None, None]
        )
        x = x + self.output(found.transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


class Decoder(torch.nn.Module):
    """From a token and its position to the scores of the next token."""

    def __init__(self, words: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.places = torch.nn.Embedding(length, width)
        self.head = torch.nn.Linear(width, words)
        self.layers = torch.nn.ModuleList(
            [Layer(width, width // HEAD, length) for _ in range(layers)]
        )

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.words(token)[None] + self.places(position)[None]
        for layer in self.layers:
            x = layer(x, position)
        return self.head(x)[0, 0]


def main() -> None:
    """Tune the decoder, and generate the same tokens with both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--work-dir")
    args = parser.parse_args()
    if args.width < HEAD or args.width % HEAD:
        parser.error(f"--width is {args.width}: expected a multiple of {HEAD}, that of a head")

    torch.manual_seed(0)
    decoder = Decoder(1000, args.width, args.layers, max(64, args.tokens)).eval()
    example = torch.tensor([1]), torch.tensor([0])
    limits = {"time_budget_s": 60 * args.minutes, "trials": args.trials}
    result = tune((decoder, example), work_dir=args.work_dir, **limits)
    # The buffers behind the token and its position: the cache, empty at first.
    caches = [np.zeros(spec.shape, spec.dtype) for spec in result.inputs[2:]]
    ours, theirs = [1], [1]
    with torch.no_grad():
        for place in range(args.tokens):
            scores, *caches = result(np.array(ours[-1:]), np.array([place]), *caches)
            ours.append(int(scores.argmax()))
            theirs.append(int(decoder(torch.tensor(theirs[-1:]), torch.tensor([place])).argmax()))
    print(*ours, f"({result.latency.median * 1e3:.2f} ms for a token)")
    print(f"{sum(map(int.__eq__, ours, theirs)) - 1} of {args.tokens} tokens are PyTorch's")


if __name__ == "__main__":
    main()
