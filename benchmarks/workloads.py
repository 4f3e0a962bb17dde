"""The workloads that estimates are judged on: models of every family, none of which calibration or fitting uses; and,
apart from them, small networks of layers that few have.

Each has two or three batch sizes, from where issuing operations is the limit to where computing is. Steps take from
some fifty microseconds to seconds on two cores. Sizes are reduced where a full model would take minutes; the
architectures are whole.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from probes.workload.description import Mode, OptimizerName, Workload
from probes.workload.models import parse_model, python_model

Document = dict[str, Any]


class Row(NamedTuple):
    """model: what a user would send to POST /recommend, or name on the command line: `module:function`."""

    name: str
    family: str
    model: Any
    batch_sizes: tuple[int, ...]
    mode: Mode = "training"
    optimizer: OptimizerName = "adamw"

    def workload(self, batch_size: int | None = None) -> Workload:
        own = isinstance(self.model, str) and ":" in self.model
        model = python_model(self.model) if own else parse_model(self.model)
        return Workload(model, batch_size or self.batch_sizes[0], mode=self.mode, optimizer=self.optimizer)


def dense(*sizes: int, activation: str = "relu", dropout: float = 0.0) -> Document:
    layers: list[Any] = []
    for size in sizes[1:]:
        layers += [{"type": "linear", "out": size}, activation]
        layers += [{"type": "dropout", "p": dropout}] if dropout else []
    return {"layers": layers[: -2 if dropout else -1], "input_shape": [sizes[0]]}


def image(widths: tuple[int, ...], side: int, *, norm: bool = True, residual: bool = False) -> Document:
    """Convolutions of 3 x 3, each stage halving the image."""
    layers: list[Any] = []
    for width in widths:
        stage: list[Any] = [{"type": "conv2d", "out": width, "kernel": 3, "padding": 1}]
        stage += ["batch_norm"] if norm else []
        layers += [*stage, "relu"]
        layers += [{"type": "residual", "layers": [*stage, "relu", *stage]}, "relu"] if residual else []
        layers.append({"type": "max_pool2d", "kernel": 2})
    return {"layers": [*layers, "global_avg_pool", {"type": "linear", "out": 10}], "input_shape": [3, side, side]}


def signal(widths: tuple[int, ...], length: int) -> Document:
    layers: list[Any] = []
    for width in widths:
        layers += [{"type": "conv1d", "out": width, "kernel": 5, "padding": 2}, "relu"]
        layers.append({"type": "max_pool1d", "kernel": 2})
    return {"layers": [*layers, "global_avg_pool", {"type": "linear", "out": 12}], "input_shape": [1, length]}


def recurrent(kind: str, hidden: int, steps: int, depth: int = 1) -> Document:
    layer = {"type": kind, "hidden": hidden, "layers": depth, "output": "last"}
    return {"layers": [{"type": "embedding", "in": 8000, "out": hidden}, layer, {"type": "linear", "out": 2}],
            "input_shape": [steps]}  # fmt: skip


def encoder(width: int, depth: int, heads: int, length: int) -> Document:
    block = {"type": "transformer_encoder_layer", "heads": heads, "feedforward": 4 * width}
    tokens = [{"type": "embedding", "in": 5000, "out": width}, "position_embedding"]
    return {"layers": [*tokens, *[block] * depth, "mean", {"type": "linear", "out": 4}], "input_shape": [length]}


def transformer(model_type: str, task: str, length: int | None = None, **config: Any) -> Document:
    document: Document = {"huggingface": {"model_type": model_type, **config}, "task": task}
    return document if length is None else {**document, "sequence_length": length}


BERT = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
LLAMA = {**BERT, "num_key_value_heads": 2, "vocab_size": 8000}
TEXT, CAUSAL, MASKED = "text-classification", "causal-lm", "masked-lm"
SEQ2SEQ, IMAGE, AUDIO = "seq2seq-lm", "image-classification", "audio-classification"

WORKLOADS: tuple[Row, ...] = (
    Row("iris", "dense", dense(4, 10, 3), (16, 120)),
    Row("tabular", "dense", dense(30, 128, 64, 1), (64, 1024)),
    Row("digits", "dense", dense(784, 256, 128, 10), (32, 512)),
    Row("dense wide", "dense", dense(512, 2048, 2048, 10), (32, 256)),
    Row("dense deep", "dense", dense(128, *[256] * 12, 10, activation="gelu", dropout=0.1), (16, 256)),
    Row("dense sgd", "dense", dense(256, 1024, 1024, 100), (64, 512), "training", "sgd"),
    Row("dense huge", "dense", dense(1024, 4096, 4096, 1000), (64,)),
    Row("tabular inference", "dense", dense(30, 128, 64, 1), (1, 1024), "inference"),
    Row("dense wide inference", "dense", dense(512, 2048, 2048, 10), (1, 256), "inference"),
    Row("image small", "convolutions", image((16, 32), 28), (8, 128)),
    Row("image plain", "convolutions", image((32, 64, 128), 32, norm=False), (8, 64)),
    Row("image residual", "convolutions", image((32, 64, 128), 32, residual=True), (4, 32)),
    Row("image large", "convolutions", image((24, 48, 96, 192), 96), (2, 16)),
    Row("image inference", "convolutions", image((32, 64, 128), 32), (1, 64), "inference"),
    Row("signal", "convolutions", signal((32, 64, 64), 1000), (8, 64)),
    Row("signal long", "convolutions", signal((64, 128, 128, 256), 4000), (4, 16)),
    Row("mobilenet-v2", "convolutions", "mobilenet-v2", (2,)),
    Row("lstm", "recurrent", recurrent("lstm", 128, 64), (8, 64)),
    Row("lstm deep", "recurrent", recurrent("lstm", 256, 48, 2), (16,)),
    Row("gru", "recurrent", recurrent("gru", 96, 40), (16, 64)),
    Row("lstm inference", "recurrent", recurrent("lstm", 128, 64), (1, 64), "inference"),
    Row("encoder", "attention", encoder(96, 2, 4, 48), (4, 32)),
    Row("encoder wide", "attention", encoder(384, 4, 6, 128), (2, 16)),
    Row("encoder long", "attention", encoder(128, 2, 4, 512), (2, 8)),
    Row("encoder inference", "attention", encoder(192, 3, 4, 96), (1, 32), "inference"),
    Row("bert", "text", transformer("bert", TEXT, 64, **BERT), (2, 16)),
    Row("bert masked", "text", transformer("bert", MASKED, 128, **BERT, vocab_size=8000), (4,)),
    Row("roberta inference", "text", transformer("roberta", TEXT, 64, **BERT), (1, 16), "inference"),
    Row("distilbert", "text", transformer("distilbert", TEXT, 128, dim=256, n_layers=3, n_heads=4,
                                          hidden_dim=1024), (8,)),
    Row("albert", "text", transformer("albert", TEXT, 64, **BERT, embedding_size=64), (4, 16)),
    Row("electra", "text", transformer("electra", TEXT, 96, **BERT), (8,)),
    Row("deberta-v2", "text", transformer("deberta-v2", TEXT, 64, **BERT), (8,)),
    Row("gpt2", "causal", transformer("gpt2", CAUSAL, 128, n_embd=192, n_layer=4, n_head=4, vocab_size=8000), (1, 8)),
    Row("llama", "causal", transformer("llama", CAUSAL, 128, **LLAMA), (1, 8)),
    Row("llama inference", "causal", transformer("llama", CAUSAL, 64, **LLAMA), (1, 8), "inference"),
    Row("qwen2", "causal", transformer("qwen2", CAUSAL, 96, **LLAMA), (4,)),
    Row("gpt_neox", "causal", transformer("gpt_neox", CAUSAL, 96, **BERT, vocab_size=8000), (4,)),
    Row("opt", "causal", transformer("opt", CAUSAL, 64, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                                     ffn_dim=1024, word_embed_proj_dim=256, vocab_size=8000), (8,)),
    Row("t5", "seq2seq", transformer("t5", SEQ2SEQ, 64, d_model=192, d_kv=48, d_ff=768, num_layers=3, num_heads=4,
                                     vocab_size=8000), (2, 16)),
    Row("bart", "seq2seq", transformer("bart", SEQ2SEQ, 64, d_model=192, encoder_layers=3, decoder_layers=3,
                                       encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=768,
                                       decoder_ffn_dim=768, vocab_size=8000), (8,)),
    Row("vit", "vision", transformer("vit", IMAGE, hidden_size=192, num_hidden_layers=4, num_attention_heads=3,
                                     intermediate_size=768, image_size=96, patch_size=16), (4, 32)),
    Row("deit inference", "vision", transformer("deit", IMAGE, hidden_size=192, num_hidden_layers=6,
                                                num_attention_heads=3, intermediate_size=768), (1, 8), "inference"),
    Row("resnet", "vision", transformer("resnet", IMAGE, embedding_size=32, hidden_sizes=[64, 128, 256, 512],
                                        depths=[2, 2, 2, 2]), (2, 8)),
    Row("convnext", "vision", transformer("convnext", IMAGE, hidden_sizes=[32, 64, 128, 256], depths=[2, 2, 2, 2],
                                          image_size=128), (4,)),
    Row("swin", "vision", transformer("swin", IMAGE, embed_dim=48, depths=[2, 2, 2], num_heads=[2, 4, 8],
                                      image_size=112), (4,)),
    Row("wav2vec2", "audio", transformer("wav2vec2", AUDIO, hidden_size=192, num_hidden_layers=3,
                                         num_attention_heads=4, intermediate_size=768), (2,)),
)  # fmt: skip

# Of benchmarks.unusual_models. They were written to be wrong about: calibrations run most of these layers since.
UNUSUAL: tuple[Row, ...] = tuple(
    Row(name, "unusual", f"benchmarks.unusual_models:{name}", (8, 64))
    for name in (
        "unet", "swiglu", "sparsemax", "fnet", "bags", "zoom", "volume", "activations", "fading", "einsum", "shuffle",
        "two_ways", "points", "spectral", "autoencoder", "waves", "mixer",
    )
)  # fmt: skip


@cache
def twins(name: str) -> frozenset[str]:
    """The workloads of the same network, in whatever mode, with whatever optimizer and length of its inputs, this one
    among them."""
    networks = [_network(row.model) for row in WORKLOADS if row.name == name]
    return frozenset({name, *(row.name for row in WORKLOADS if _network(row.model) in networks)})


def _network(model: Any) -> Any:
    if not isinstance(model, dict):
        return model
    return {key: value for key, value in model.items() if key != "sequence_length"}
