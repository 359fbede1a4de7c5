//! Qwen2 (Yang et al. 2024) and 2.5: Llama with biases on queries, keys and values.

use crate::architectures::{Arch, Built};
use crate::causal::{Plain, late_windows, load};
use crate::config::Config;
use crate::error::Result;
use crate::loader::{Bias, Loader};

/// Qwen2.
pub const ARCH: Arch = Arch { family: "qwen2", names: &["Qwen2ForCausalLM", "Qwen2Model", "qwen2"], load: load_qwen2 };

fn load_qwen2(config: &Config, root: &Loader) -> Result<Built> {
    let plain = Plain {
        family: ARCH.family,
        qkv_bias: Bias::Yes,
        output_bias: Bias::No,
        mlp_bias: Bias::No,
        head_norms: false,
        head_dim: None,
        windows: late_windows(config)?,
    };
    load(config, root, plain)
}
