# SPDX-License-Identifier: Apache-2.0
"""Vision models of transformers."""

from collections.abc import Callable
from typing import Any

import torch

from .from_config import SMALL, ids, image, model

VIT = dict(SMALL, image_size=64, patch_size=16)
_TEXT = dict(SMALL, vocab_size=100, max_position_embeddings=16)
DINO = {k: v for k, v in VIT.items() if k != "intermediate_size"}


def _pair() -> dict[str, torch.Tensor]:
    (tokens,), (pixels,) = ids(16)(), image()()
    tokens[:, -1] = 99
    return {"input_ids": tokens, "pixel_values": pixels}


_SWIN = dict(
    image_size=64, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
)
FOUR_STAGES = dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])
PYRAMID = dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4])
_STAGES = dict(hidden_sizes=[16, 32], depths=[1, 1])

BUILDERS: dict[str, Callable[[], Any]] = {
    "vit": model("ViTForImageClassification", image(), **VIT),
    "deit": model("DeiTModel", image(), **VIT),
    "beit": model("BeitModel", image(), **VIT, use_relative_position_bias=True),
    "data2vec_vision": model("Data2VecVisionModel", image(), **VIT),
    "dinov2": model("Dinov2Model", image(), **DINO),
    "dinov2_resized": model("Dinov2Model", image(96), **DINO),
    "dinov2_with_registers": model("Dinov2WithRegistersModel", image(), **DINO),
    "dinov3_vit": model("DINOv3ViTModel", image(), **VIT, num_register_tokens=2),
    "swin": model("SwinModel", image(), **_SWIN),
    "swinv2": model("Swinv2Model", image(), **_SWIN),
    "swin2sr": model(
        "Swin2SRForImageSuperResolution",
        image(32),
        image_size=32,
        embed_dim=16,
        depths=[2],
        num_heads=[2],
        window_size=4,
    ),
    "convnext": model("ConvNextModel", image(), **FOUR_STAGES),
    "convnextv2": model("ConvNextV2Model", image(), **FOUR_STAGES),
    "resnet": model("ResNetForImageClassification", image(), embedding_size=16, **_STAGES),
    "regnet": model("RegNetModel", image(), embedding_size=16, groups_width=8, **_STAGES),
    "bit": model("BitModel", image(), embedding_size=16, num_groups=8, **_STAGES),
    "mobilenet_v1": model("MobileNetV1Model", image(), depth_multiplier=0.25, image_size=64),
    "mobilenet_v2": model("MobileNetV2Model", image(), depth_multiplier=0.25, image_size=64),
    "mobilevit": model(
        "MobileViTModel",
        image(),
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
        num_attention_heads=2,
    ),
    "mobilevitv2": model("MobileViTV2Model", image(), image_size=64, width_multiplier=0.25),
    "efficientnet": model(
        "EfficientNetModel",
        image(),
        image_size=64,
        width_coefficient=0.25,
        depth_coefficient=0.25,
        hidden_dim=320,
    ),
    "poolformer": model(
        "PoolFormerModel", image(), hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]
    ),
    "pvt_v2": model("PvtV2Model", image(), image_size=64, **PYRAMID),
    "levit": model(
        "LevitModel",
        image(),
        image_size=64,
        hidden_sizes=[32, 48, 64],
        num_attention_heads=[2, 3, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    "cvt": model("CvtModel", image(), embed_dim=[16, 32, 48], depth=[1, 2, 3], num_heads=[1, 2, 3]),
    "focalnet": model(
        "FocalNetModel",
        image(),
        image_size=64,
        embed_dim=16,
        depths=[1, 1],
        focal_levels=[2, 2],
        focal_windows=[3, 3],
    ),
    "swiftformer": model(
        "SwiftFormerModel", image(), embed_dims=[16, 24, 32, 48], depths=[1, 1, 1, 1]
    ),
    "hiera": model(
        "HieraModel",
        image(),
        image_size=[64, 64],
        embed_dim=16,
        num_heads=[1, 2],
        depths=[1, 1],
        num_query_pool=1,
    ),
    "vit_mae": model(
        "ViTMAEModel",
        lambda: {"pixel_values": torch.randn(1, 3, 64, 64), "noise": torch.rand(1, 16)},
        **VIT,
    ),
    "vitdet": model(
        "VitDetModel",
        image(),
        **DINO,
        window_block_indices=[0],
        window_size=2,
        pretrain_image_size=64,
    ),
    "hgnet_v2": model("HGNetV2ForImageClassification", image()),
    "clip": model(
        "CLIPModel",
        _pair,
        text_config={**_TEXT, "eos_token_id": 99},
        vision_config=VIT,
        projection_dim=32,
    ),
    "clip_vision": model("CLIPVisionModel", image(), **VIT),
    "siglip": model("SiglipModel", _pair, text_config=_TEXT, vision_config=VIT),
    "blip_vision": model("BlipVisionModel", image(), **VIT),
    "sam_vision": model(
        "SamVisionModel",
        image(64),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=64,
        patch_size=16,
        window_size=2,
        global_attn_indexes=[1],
        output_channels=16,
        mlp_dim=64,
    ),
    "videomae": model(
        "VideoMAEModel",
        lambda: (torch.randn(1, 4, 3, 32, 32),),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_frames=4,
    ),
}
