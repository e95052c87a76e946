# SPDX-License-Identifier: Apache-2.0
"""Transformers: BERT's encoder, and the benchmark called BERT in papers on graph search."""

from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule

from .writing import Network, write


def bert_encoder(
    layers: int = 2, length: int = 128, width: int = 768, heads: int = 12, hidden: int = 3072
) -> IRModule:
    """Layers of BERT's encoder, as exporters write them.

    "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (Devlin et
    al., 2019). The defaults match its base model, except for the number of layers.
    """

    def body(net: Network, x: Any) -> Any:
        for _ in range(layers):
            mixed = net.dense(_softmax_attention(net, x, heads), width)
            x = _layer_norm(net, net.add(mixed, x))
            y = net.dense(net.emit(relax.op.nn.gelu(net.dense(x, hidden))), width)
            x = _layer_norm(net, net.add(y, x))
        return x

    return write(body, (1, length, width))


def _softmax_attention(net: Network, x: Any, heads: int) -> Any:
    op, emit = relax.op, net.emit
    _, length, width = map(int, x.ty.shape)
    each = width // heads

    def split(axes: list[int]) -> Any:
        rows = emit(op.reshape(net.dense(x, width), (1, length, heads, each)))
        return emit(op.permute_dims(rows, axes))

    query, key, value = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
    scale = relax.const(np.float32(1 / np.sqrt(each)))
    scores = emit(op.multiply(emit(op.matmul(query, key)), scale))
    mixed = emit(op.matmul(emit(op.nn.softmax(scores, axis=-1)), value))
    return emit(op.reshape(emit(op.permute_dims(mixed, [0, 2, 1, 3])), (1, length, width)))


def _layer_norm(net: Network, x: Any) -> Any:
    width = int(x.ty.shape[-1])
    scale, shift = net.const(net.uniform(width)), net.const(net.normal(width, fan_in=100))
    return net.emit(relax.op.nn.layer_norm(x, scale, shift, axes=[-1], epsilon=1e-12))


def linear_bert(layers: int = 8, length: int = 64, width: int = 1024, heads: int = 16) -> IRModule:
    """The benchmark BERT of TASO and TENSAT, without softmax, norms and feed-forward parts.

    Sizes and structure come from "Equality Saturation for Tensor Graph Superoptimization" (Yang et
    al., MLSys 2021). A layer passes on a single matrix product, so a rewrite can multiply the
    weights of all layers in advance. That flatters a search. The output is the sum of the layers'
    attentions, so that no layer is dead code.
    """
    each = width // heads

    def body(net: Network, x: Any) -> Any:
        op, emit = relax.op, net.emit

        def split(axes: list[int]) -> Any:
            rows = emit(op.reshape(net.dense(x, width, bias=False), (length, heads, each)))
            return emit(op.permute_dims(rows, axes))

        total: Any = None
        for _ in range(layers):
            query, key, value = split([1, 0, 2]), split([1, 2, 0]), split([1, 0, 2])
            mixed = emit(op.matmul(emit(op.matmul(query, key)), value))
            rows = emit(op.reshape(emit(op.permute_dims(mixed, [1, 0, 2])), (length, width)))
            total = rows if total is None else net.add(total, rows)
            x = net.dense(x, width, bias=False)
        return total

    return write(body, (length, width))
