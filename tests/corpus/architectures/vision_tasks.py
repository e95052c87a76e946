# SPDX-License-Identifier: Apache-2.0
"""Vision models of transformers that find, divide or describe what is in an image."""

from collections.abc import Callable
from typing import Any

import torch

from .from_config import config, ids, image, model
from .vision import DINO, FOUR_STAGES, PYRAMID, VIT


def _captioning() -> dict[str, torch.Tensor]:
    (tokens,), (pixels,) = ids(8)(), image()()
    return {"pixel_values": pixels, "decoder_input_ids": tokens}


_DETECTION = dict(
    d_model=32,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    num_queries=10,
)

BUILDERS: dict[str, Callable[[], Any]] = {
    "segformer": model(
        "SegformerForSemanticSegmentation",
        image(),
        **PYRAMID,
        decoder_hidden_size=32,
        num_labels=5,
    ),
    "yolos": model(
        "YolosForObjectDetection",
        image(),
        **{**VIT, "image_size": [64, 64]},
        num_detection_tokens=10,
    ),
    "glpn": model(
        "GLPNForDepthEstimation",
        image(),
        **PYRAMID,
        decoder_hidden_size=16,
    ),
    "detr": model(
        "DetrForObjectDetection",
        image(),
        **_DETECTION,
        backbone_config=config(
            "ResNetConfig",
            embedding_size=16,
            hidden_sizes=[16, 32],
            depths=[1, 1],
            out_features=["stage2"],
        ),
        use_timm_backbone=False,
        encoder_layers=1,
        decoder_layers=1,
    ),
    "rt_detr": model(
        "RTDetrForObjectDetection",
        image(),
        **_DETECTION,
        backbone_config=config(
            "RTDetrResNetConfig",
            **FOUR_STAGES,
            embedding_size=16,
            layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        ),
        encoder_hidden_dim=32,
        encoder_in_channels=[32, 48, 64],
        feat_strides=[8, 16, 32],
        decoder_in_channels=[32, 32, 32],
        decoder_layers=1,
        anchor_image_size=None,
    ),
    "upernet": model(
        "UperNetForSemanticSegmentation",
        image(),
        backbone_config=config(
            "ConvNextConfig",
            **FOUR_STAGES,
            out_features=["stage1", "stage2", "stage3", "stage4"],
        ),
        hidden_size=32,
        use_auxiliary_head=False,
        num_labels=5,
    ),
    "depth_anything": model(
        "DepthAnythingForDepthEstimation",
        image(),
        backbone_config=config(
            "Dinov2Config",
            **DINO,
            out_features=["stage1", "stage2"],
            reshape_hidden_states=False,
        ),
        reassemble_hidden_size=64,
        patch_size=16,
        reassemble_factors=[2, 1],
        neck_hidden_sizes=[16, 32],
        fusion_hidden_size=16,
        head_in_index=-1,
    ),
    "trocr": model(
        "VisionEncoderDecoderModel",
        _captioning,
        encoder=dict(VIT, model_type="vit"),
        decoder=dict(
            model_type="trocr",
            vocab_size=100,
            d_model=64,
            decoder_layers=1,
            decoder_attention_heads=4,
            decoder_ffn_dim=64,
            max_position_embeddings=32,
            is_decoder=True,
            add_cross_attention=True,
        ),
    ),
}
