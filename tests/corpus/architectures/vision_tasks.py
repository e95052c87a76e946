# SPDX-License-Identifier: Apache-2.0
"""Vision models of transformers that find, divide or describe what is in an image."""

from collections.abc import Callable
from typing import Any

from .from_config import ids, image, model
from .vision import DINO, VIT


def _depth_anything() -> Any:
    import transformers

    backbone = transformers.Dinov2Config(
        **DINO, out_features=["stage1", "stage2"], reshape_hidden_states=False
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=64,
        patch_size=16,
        reassemble_factors=[2, 1],
        neck_hidden_sizes=[16, 32],
        fusion_hidden_size=16,
        head_in_index=-1,
    )
    return transformers.DepthAnythingForDepthEstimation(config), image()()


def _detr() -> Any:
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        num_queries=10,
    )
    return transformers.DetrForObjectDetection(config), image()()


def _upernet() -> Any:
    import transformers

    backbone = transformers.ConvNextConfig(
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = transformers.UperNetConfig(
        backbone_config=backbone, hidden_size=32, use_auxiliary_head=False, num_labels=5
    )
    return transformers.UperNetForSemanticSegmentation(config), image()()


def _rt_detr() -> Any:
    import transformers

    backbone = transformers.RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = transformers.RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[32, 48, 64],
        feat_strides=[8, 16, 32],
        encoder_ffn_dim=64,
        encoder_attention_heads=4,
        d_model=32,
        num_queries=10,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=64,
        decoder_layers=1,
        decoder_attention_heads=4,
        anchor_image_size=None,
    )
    return transformers.RTDetrForObjectDetection(config), image()()


def _trocr_like() -> Any:
    import transformers

    encoder = transformers.ViTConfig(**VIT)
    decoder = transformers.TrOCRConfig(
        vocab_size=100,
        d_model=64,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        max_position_embeddings=32,
    )
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    (tokens,), (pixels,) = ids(8)(), image()()
    return transformers.VisionEncoderDecoderModel(config), {
        "pixel_values": pixels,
        "decoder_input_ids": tokens,
    }


BUILDERS: dict[str, Callable[[], Any]] = {
    "segformer": model(
        "SegformerForSemanticSegmentation",
        image(),
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
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
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
    ),
    "detr": _detr,
    "rt_detr": _rt_detr,
    "upernet": _upernet,
    "depth_anything": _depth_anything,
    "trocr": _trocr_like,
}
