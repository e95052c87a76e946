# SPDX-License-Identifier: Apache-2.0
"""Models for graph searches, with random weights and without downloads.

``python -m benchmarks.graphs`` measures them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from .inception import inception_v3
from .nasnet import nasnet_a
from .recurrent import lstm, lstm_by_hand, nasrnn
from .repvgg import repvgg, repvgg_by_hand
from .residual import mobilenet_v2, resnet_v1, resnext
from .transformers import bert_encoder, linear_bert

__all__ = ["MODELS", "GraphModel"]


@dataclass(frozen=True)
class GraphModel:
    """A model.

    ``make``: makes the module as a frontend imports it. ``by_hand``: makes an expert's hand-written
    module with the same outputs.
    """

    make: Callable[[], Any]
    by_hand: Callable[[], Any] | None = None


def light(name: str) -> Any:
    """A light model of the package ``onnx`` as TVM's frontend imports it, without its last softmax.
    Weights are random."""
    # These imports need the package onnx, which is an extra.
    from tvm_droplet_ms.frontends import import_model

    from ..model_zoo import light_onnx

    imported = import_model(light_onnx(name))
    return imported.original or imported.mod


MODELS: Mapping[str, GraphModel] = {
    "densenet121": GraphModel(partial(light, "densenet121")),
    "inception_v2": GraphModel(partial(light, "inception_v2")),
    "resnet50_v1": GraphModel(resnet_v1),
    "bert_encoder": GraphModel(bert_encoder),
    "repvgg_a0": GraphModel(repvgg, repvgg_by_hand),
    "lstm": GraphModel(lstm, lstm_by_hand),
    "bert_8": GraphModel(linear_bert),
    "nasrnn": GraphModel(nasrnn),
    "resnext50": GraphModel(resnext),
    "mobilenet_v2": GraphModel(mobilenet_v2),
    "squeezenet": GraphModel(partial(light, "squeezenet")),
    "resnet50": GraphModel(partial(light, "resnet50")),
    "vgg19": GraphModel(partial(light, "vgg19")),
    "inception_v3": GraphModel(inception_v3),
    "nasnet_a": GraphModel(nasnet_a),
}
"""All models by name. ``resnet50`` is version 1.5."""
