"""Small models that tests build for real: one of each kind that transformers feeds differently."""

from typing import Any

_WIDTHS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_SPEECH = {"conv_dim": [16, 16], "conv_stride": [5, 4], "conv_kernel": [10, 8], "num_feat_extract_layers": 2}
_POSITIONS = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
_WHISPER = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
_WHISPER |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 50}
_WHISPER |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 300}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 300, "n_positions": 64}
_RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 5}
_MOE = {"num_local_experts": 4, "num_key_value_heads": 2, "vocab_size": 300}
_BART = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
_BART |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 300}

TINY: dict[str, dict[str, Any]] = {
    "bert": {"huggingface": {"model_type": "bert", "vocab_size": 300, **_WIDTHS}, "sequence_length": 16},
    "bert-masked": {
        "huggingface": {"model_type": "bert", "vocab_size": 300, **_WIDTHS},
        "task": "fill-mask",
        "sequence_length": 16,
    },
    "bert-answers": {
        "huggingface": {"model_type": "bert", "vocab_size": 300, **_WIDTHS},
        "task": "question-answering",
        "sequence_length": 16,
    },
    "llama": {"huggingface": {"model_type": "llama", "vocab_size": 300, **_WIDTHS}, "sequence_length": 16},
    "llama-classifies": {
        "huggingface": {"model_type": "llama", "vocab_size": 300, **_WIDTHS},
        "task": "text-classification",
        "sequence_length": 16,
    },
    "mixtral": {"huggingface": {"model_type": "mixtral", **_WIDTHS, **_MOE}, "sequence_length": 16},
    "gpt2": {"huggingface": {"model_type": "gpt2", **_GPT2}, "sequence_length": 16},
    "t5": {"huggingface": {"model_type": "t5", **_T5}, "sequence_length": 16},
    "bart-classifies": {
        "huggingface": {"model_type": "bart", **_BART},
        "task": "text-classification",
        "sequence_length": 16,
    },
    "vit": {"huggingface": {"model_type": "vit", "image_size": 32, "patch_size": 8, "num_labels": 5, **_WIDTHS}},
    "resnet": {"huggingface": {"model_type": "resnet", **_RESNET}, "image_size": 32},
    "wav2vec2": {
        "huggingface": {"model_type": "wav2vec2", **_WIDTHS, **_SPEECH, **_POSITIONS},
        "task": "audio-classification",
        "audio_samples": 4000,
    },
    "wav2vec2-ctc": {
        "huggingface": {"model_type": "wav2vec2", **_WIDTHS, **_SPEECH, **_POSITIONS},
        "task": "asr",
        "audio_samples": 16000,
    },
    "whisper": {"huggingface": {"model_type": "whisper", "vocab_size": 300, **_WHISPER}, "sequence_length": 8},
    "regression": {"huggingface": {"model_type": "bert", "num_labels": 1, **_WIDTHS}, "sequence_length": 16},
}

# Layers with a convolution, a norm and a linear one.
IMAGE: dict[str, Any] = {
    "layers": [
        {"type": "conv2d", "out": 8, "kernel": 3},
        "batch_norm",
        "relu",
        "flatten",
        {"type": "linear", "out": 3},
    ],
    "input_shape": [3, 8, 8],
}
