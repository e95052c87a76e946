# SPDX-License-Identifier: Apache-2.0
"""Language models of transformers."""

from .from_config import ENCODER_DECODER, SMALL, ids, masked_ids, model, pair_ids

_SMALL = dict(SMALL, vocab_size=100)
_DECODER = dict(_SMALL, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=1)
_GPT2 = dict(vocab_size=100, n_embd=64, n_layer=2, n_head=4, n_positions=64)
_T5 = dict(vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
_BART = dict(ENCODER_DECODER, vocab_size=100, d_model=64, max_position_embeddings=64)
_ATTENTION = {name: _SMALL[name] for name in _SMALL if name != "intermediate_size"}
_TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=1)

BUILDERS = {
    "bert": model("BertModel", masked_ids(), **_SMALL),
    "bert_classifier": model("BertForSequenceClassification", ids(), **_SMALL),
    "roberta": model("RobertaModel", masked_ids(), **_SMALL),
    "distilbert": model(
        "DistilBertModel",
        masked_ids(),
        vocab_size=100,
        dim=64,
        n_layers=2,
        n_heads=4,
        hidden_dim=128,
    ),
    "albert": model("AlbertModel", ids(), **_SMALL, embedding_size=32),
    "electra": model("ElectraModel", masked_ids(), **_SMALL, embedding_size=32),
    "deberta": model(
        "DebertaModel", ids(), **_SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"]
    ),
    "deberta_v2": model(
        "DebertaV2Model",
        masked_ids(),
        **_SMALL,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=16,
    ),
    "mpnet": model("MPNetModel", masked_ids(), **_SMALL),
    "xlnet": model(
        "XLNetModel", ids(), vocab_size=100, d_model=64, n_layer=2, n_head=4, d_inner=128
    ),
    "fnet": model("FNetModel", ids(), **_SMALL),
    "mobilebert": model(
        "MobileBertModel",
        ids(),
        **_SMALL,
        embedding_size=32,
        intra_bottleneck_size=32,
        true_hidden_size=32,
    ),
    "convbert": model("ConvBertModel", ids(), **_SMALL, embedding_size=64),
    "squeezebert": model("SqueezeBertModel", ids(), **_SMALL, embedding_size=64),
    "roformer": model("RoFormerModel", ids(), **_SMALL, embedding_size=64),
    "esm": model(
        "EsmModel", masked_ids(), **_SMALL, pad_token_id=0, position_embedding_type="rotary"
    ),
    "modernbert": model(
        "ModernBertModel", masked_ids(), **_SMALL, **_TOKENS, cls_token_id=1, sep_token_id=1
    ),
    "longformer": model(
        "LongformerModel", ids(32), **_SMALL, attention_window=[8, 8], max_position_embeddings=64
    ),
    "funnel": model(
        "FunnelBaseModel",
        ids(),
        vocab_size=100,
        block_sizes=[1, 1],
        d_model=64,
        n_head=4,
        d_inner=128,
    ),
    "splinter": model("SplinterModel", ids(), **_SMALL),
    "layoutlm": model("LayoutLMModel", ids(), **_SMALL),
    "canine": model("CanineModel", ids(32), **SMALL),
    "gpt2": model("GPT2LMHeadModel", ids(), **_GPT2, **_TOKENS),
    "gpt2_masked": model("GPT2Model", masked_ids(), **_GPT2, **_TOKENS),
    "gpt_neo": model(
        "GPTNeoModel",
        ids(),
        vocab_size=100,
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64,
        **_TOKENS,
    ),
    "gpt_neox": model("GPTNeoXForCausalLM", ids(), **_SMALL, **_TOKENS),
    "gptj": model("GPTJModel", ids(), **_GPT2, rotary_dim=8, **_TOKENS),
    "codegen": model("CodeGenModel", ids(), **_GPT2, rotary_dim=8, **_TOKENS),
    "bloom": model(
        "BloomModel", ids(), vocab_size=100, hidden_size=64, n_layer=2, n_head=4, **_TOKENS
    ),
    "opt": model(
        "OPTModel", masked_ids(), **_ATTENTION, ffn_dim=128, word_embed_proj_dim=64, **_TOKENS
    ),
    "falcon": model("FalconModel", ids(), **_ATTENTION, **_TOKENS),
    "mpt": model("MptModel", ids(), vocab_size=100, d_model=64, n_layers=2, n_heads=4),
    "llama": model("LlamaForCausalLM", ids(), **_DECODER),
    "llama_masked": model("LlamaModel", masked_ids(), **_DECODER),
    "mistral": model("MistralModel", ids(), **_DECODER, sliding_window=8),
    "mixtral": model("MixtralModel", ids(), **_DECODER, num_local_experts=4),
    "qwen2": model("Qwen2Model", ids(), **_DECODER),
    "qwen3": model("Qwen3Model", ids(), **_DECODER, head_dim=16),
    "gemma": model("GemmaModel", ids(), **_DECODER, head_dim=16),
    "gemma2": model("Gemma2Model", ids(), **_DECODER, head_dim=16),
    "gemma3": model("Gemma3TextModel", ids(), **_DECODER, head_dim=16),
    "phi": model("PhiModel", ids(), **_DECODER),
    "phi3": model("Phi3Model", ids(), **_DECODER),
    "olmo2": model("Olmo2Model", ids(), **_DECODER),
    "smollm3": model("SmolLM3Model", ids(), **_DECODER),
    "stablelm": model("StableLmModel", ids(), **_DECODER),
    "mamba": model(
        "MambaModel",
        ids(),
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=1,
        state_size=8,
        **_TOKENS,
    ),
    "t5_encoder": model("T5EncoderModel", masked_ids(), **_T5),
    "t5": model("T5Model", pair_ids(), **_T5),
    "bart": model("BartModel", pair_ids(), **_BART),
    "marian": model("MarianModel", pair_ids(), **_BART, pad_token_id=0),
    "pegasus": model("PegasusModel", pair_ids(), **_BART),
    "m2m_100": model("M2M100Model", pair_ids(), **_BART),
}
