//! Qwen3 (Yang et al. 2025) and Qwen3-Embedding: Llama with norms on each head of queries and keys.

use crate::architectures::{Arch, Built};
use crate::causal::{Plain, late_windows, load};
use crate::config::Config;
use crate::error::Result;
use crate::loader::{Bias, Loader};

/// Qwen3.
pub const ARCH: Arch = Arch { family: "qwen3", names: &["Qwen3ForCausalLM", "Qwen3Model", "qwen3"], load: load_qwen3 };

fn load_qwen3(config: &Config, root: &Loader) -> Result<Built> {
    let bias = config.flag_or("attention_bias", false)?.into();
    let plain = Plain {
        family: ARCH.family,
        qkv_bias: bias,
        output_bias: bias,
        mlp_bias: Bias::No,
        head_norms: true,
        head_dim: Some(128),
        windows: late_windows(config)?,
    };
    load(config, root, plain)
}
