"""Tiny models as Hugging Face directories and as the GGUF files that llama.cpp's converter makes of them.

    LLAMA_CPP=/path/to/llama.cpp python gen_gguf_names.py ../gguf_names

LLAMA_CPP is a source tree of llama.cpp (the source distribution of llama-cpp-python 0.3.36 has one under vendor/); needs
torch 2.15.0, transformers 5.24.0 and safetensors 0.8.0. Weights are random; nothing is computed with them. The converter's vocabularies
are replaced by plain lists of tokens: what is compared are the names, shapes and values of tensors, and config.json.
"""

import json
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers

ROOT = Path(os.environ["LLAMA_CPP"])
sys.path[:0] = [str(ROOT), str(ROOT / "gguf-py")]

import gguf  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase, ModelType, get_model_architecture  # noqa: E402

SIZES = {
    "vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 1,
}
GQA = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
THETA = {"rope_theta": 10000.0, "rope_type": "default"}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
SHARED = {"shared_expert_intermediate_size": 64}
DELTA = GQA | {
    "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 8,
    "rope_parameters": THETA | {"partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0], "mrope_interleaved": True},
}
GEMMA = GQA | {"num_hidden_layers": 2, "sliding_window": 8, "query_pre_attn_scalar": 8}
GEMMA3 = GEMMA | {"layer_types": ["sliding_attention"] * 2}
ROPES = {"full_attention": THETA | {"rope_theta": 1e6}, "sliding_attention": THETA}
LINEAR = ROPES | {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}}
PROPORTIONAL = {"rope_theta": 1e6, "rope_type": "proportional", "partial_rotary_factor": 0.5}

# What the published code of NomicBERT calls its options; the converter insists on them.
NOMIC = {
    "n_positions": 2048, "max_trained_positions": 2048, "activation_function": "swiglu", "causal": False,
    "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False, "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
}

# name: class, config, and options of the conversion
CASES = {
    "llama": ("LlamaForCausalLM", GQA | {"rope_parameters": LLAMA3, "tie_word_embeddings": True}, {}),
    "llama_fused": ("LlamaForCausalLM", GQA | {"attention_bias": True}, {"fuse_qkv": True}),
    "qwen2": ("Qwen2ForCausalLM", GQA, {}),
    "qwen3": ("Qwen3ForCausalLM", GQA | {"head_dim": 16}, {}),
    "qwen3moe": ("Qwen3MoeForCausalLM", GQA | EXPERTS, {}),
    "qwen35": ("Qwen3_5ForCausalLM", DELTA, {}),
    "qwen35moe_fused": ("Qwen3_5MoeForCausalLM", DELTA | EXPERTS | SHARED, {"fuse_gate_up_exps": True}),
    "qwen35moe_q8_0": ("Qwen3_5MoeForCausalLM", DELTA | EXPERTS | SHARED, {"ftype": "MOSTLY_Q8_0"}),
    "gemma2": ("Gemma2ForCausalLM", GEMMA | {"layer_types": ["sliding_attention", "full_attention"]}, {}),
    "gemma3_linear": ("Gemma3ForCausalLM", GEMMA3 | {"rope_parameters": LINEAR}, {"tokenizer": "llama"}),
    "gemma_embedding": (
        "Gemma3TextModel", GEMMA3 | {"rope_parameters": ROPES, "use_bidirectional_attention": True}, {"tokenizer": "llama"},
    ),
    "gemma4": (
        "Gemma4ForCausalLM",
        GQA | {
            "num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "sliding_window": 8, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 32,
            "num_kv_shared_layers": 1, "per_layer_config": {"1": {"head_dim": 16}, "2": {"head_dim": 16}},
            "use_double_wide_mlp": True, "rope_parameters": ROPES | {"full_attention": PROPORTIONAL},
        },
        {},
    ),
    "bert": ("BertModel", SIZES | {"pad_token_id": 0}, {"tokenizer": "bert"}),
    "xlm_roberta_classifier": (
        "XLMRobertaForSequenceClassification", SIZES | {"type_vocab_size": 1, "num_labels": 1}, {"tokenizer": "t5"},
    ),
    "nomic_bert": ("NomicBertModel", SIZES | {"max_position_embeddings": 2048}, {"tokenizer": "bert", "patch": NOMIC}),
    "modern_bert": ("ModernBertModel", SIZES | {"num_hidden_layers": 4, "local_attention": 16}, {}),
}


def build(name, cls, config, folder):
    torch.manual_seed(sum(name.encode()))
    model_class = getattr(transformers, cls)
    model = model_class(model_class.config_class(**config)).eval()
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            tensor.data = torch.randn(tensor.shape) * 0.3
    model.to(torch.bfloat16).save_pretrained(folder)


def convert(folder, ftype="MOSTLY_BF16", tokenizer="gpt2", patch=None, **options):
    config = json.loads((folder / "config.json").read_text())

    def set_vocab(self):
        self.gguf_writer.add_tokenizer_model(tokenizer)
        self.gguf_writer.add_token_list([f"t{i}".encode() for i in range(config["vocab_size"])])
        for kind in ("bos", "eos", "pad"):
            if (token := config.get(f"{kind}_token_id")) is not None:
                getattr(self.gguf_writer, f"add_{kind}_token_id")(token)

    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        scratch = Path(scratch)
        shutil.copy(folder / "model.safetensors", scratch)
        (scratch / "config.json").write_text(json.dumps(config | (patch or {})))
        vocabulary = {str(i): i for i in range(config["vocab_size"])}
        (scratch / "tokenizer.json").write_text(
            json.dumps({"model": {"type": "WordPiece", "vocab": vocabulary}, "added_tokens": []})
        )
        architecture = get_model_architecture(ModelBase.load_hparams(scratch, False), ModelType.TEXT)
        base = get_model_class(architecture)
        if hasattr(base, "no_mtp"):
            base.no_mtp = True
        model = type(base.__name__, (base,), {"set_vocab": set_vocab, "model_arch": base.model_arch})
        ftype = getattr(gguf.LlamaFileType, ftype)
        model(scratch, ftype, folder / "model.gguf", model_name="tiny", eager=True, **options).write()


def main(out):
    logging.basicConfig(level=logging.ERROR)
    for name, (cls, config, options) in CASES.items():
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        build(name, cls, config, folder)
        convert(folder, **options)
        (folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
