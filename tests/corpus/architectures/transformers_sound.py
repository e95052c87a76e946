# SPDX-License-Identifier: Apache-2.0
"""Speech and sound models of transformers."""

import torch

from .from_config import ENCODER_DECODER, SMALL, model, tensor

_WAVE = dict(
    SMALL,
    conv_dim=[32] * 7,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
    vocab_size=32,
)
_WHISPER = dict(
    ENCODER_DECODER,
    vocab_size=100,
    d_model=64,
    max_source_positions=100,
    max_target_positions=64,
    num_mel_bins=40,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=1,
    decoder_start_token_id=1,
)


class _Encoder(torch.nn.Module):
    """The encoder of a model that has one."""

    def __init__(self, whole: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = whole.get_encoder()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x).last_hidden_state


def _whisper_inputs() -> dict[str, torch.Tensor]:
    return {
        "input_features": torch.randn(1, 40, 200),
        "decoder_input_ids": torch.randint(2, 100, (1, 8)),
    }


_second = tensor(1, 8000)

BUILDERS = {
    "wav2vec2": model("Wav2Vec2ForCTC", _second, **_WAVE),
    "wav2vec2_layer_norm": model(
        "Wav2Vec2Model", _second, **_WAVE, feat_extract_norm="layer", do_stable_layer_norm=True
    ),
    "hubert": model("HubertModel", _second, **_WAVE),
    "wavlm": model("WavLMModel", _second, **_WAVE, num_buckets=32, max_bucket_distance=64),
    "unispeech_sat": model("UniSpeechSatModel", _second, **_WAVE),
    "data2vec_audio": model("Data2VecAudioModel", _second, **_WAVE),
    "sew": model(
        "SEWModel",
        _second,
        **SMALL,
        conv_dim=[32] * 13,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    ),
    "whisper_encoder": model("WhisperModel", tensor(1, 40, 200), _Encoder, **_WHISPER),
    "whisper": model("WhisperForConditionalGeneration", _whisper_inputs, **_WHISPER),
    "audio_spectrogram_transformer": model(
        "ASTModel",
        tensor(1, 64, 32),
        **SMALL,
        max_length=64,
        num_mel_bins=32,
    ),
    "speech_to_text_encoder": model(
        "Speech2TextModel",
        tensor(1, 100, 40),
        _Encoder,
        **{**ENCODER_DECODER, "decoder_layers": 1, "decoder_ffn_dim": 64},
        vocab_size=100,
        d_model=64,
        input_feat_per_channel=40,
        max_source_positions=200,
        conv_channels=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    ),
    "encodec_encoder": model(
        "EncodecModel",
        tensor(1, 1, 400),
        lambda whole: whole.encoder,
        hidden_size=32,
        num_filters=8,
        upsampling_ratios=[4, 2],
        codebook_size=64,
        codebook_dim=32,
    ),
    "moonshine": model(
        "MoonshineModel",
        lambda: {
            "input_values": torch.randn(1, 4000),
            "decoder_input_ids": torch.randint(2, 99, (1, 6)),
        },
        vocab_size=100,
        hidden_size=64,
        intermediate_size=128,
        encoder_num_hidden_layers=1,
        decoder_num_hidden_layers=1,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
    ),
    "wav2vec2_bert": model(
        "Wav2Vec2BertModel",
        tensor(1, 40, 160),
        **SMALL,
    ),
    "wav2vec2_conformer": model("Wav2Vec2ConformerModel", _second, **_WAVE),
    "clap_audio": model(
        "ClapAudioModel",
        lambda: {
            "input_features": torch.randn(1, 1, 256, 16),
            "is_longer": torch.tensor([[False]]),
        },
        spec_size=64,
        window_size=4,
        num_mel_bins=16,
        patch_embeds_hidden_size=16,
        hidden_size=64,
        depths=[1, 1, 1],
        num_attention_heads=[2, 4, 4],
        patch_size=4,
        patch_stride=[4, 4],
    ),
    "univnet": model(
        "UnivNetModel",
        lambda: {
            "input_features": torch.randn(1, 12, 20),
            "noise_sequence": torch.randn(1, 12, 16),
        },
        model_in_channels=16,
        model_hidden_channels=8,
        num_mel_bins=20,
        resblock_stride_sizes=[4, 2],
        resblock_kernel_sizes=[3, 3],
        resblock_dilation_sizes=[[1, 3], [1, 3]],
        kernel_predictor_hidden_channels=16,
    ),
    "hifigan": model(
        "SpeechT5HifiGan",
        tensor(1, 16, 20),
        model_in_dim=20,
        upsample_initial_channel=32,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
    ),
    "vits_text_encoder": model(
        "VitsModel",
        lambda: {
            "input_ids": torch.randint(1, 40, (1, 12)),
            "padding_mask": torch.ones(1, 12, 1),
        },
        lambda whole: whole.text_encoder,
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=1,
        ffn_dim=64,
        flow_size=32,
        spectrogram_bins=33,
    ),
}
