//! Llama (Touvron et al. 2023) 2 and 3.x with the models that share its class (SmolLM), and Mistral (Jiang et al. 2023),
//! which is Llama with a sliding window.

use crate::architectures::{Arch, Built};
use crate::causal::{Plain, load};
use crate::config::{Config, MAX_LAYERS, MAX_POSITIONS};
use crate::error::Result;
use crate::loader::{Bias, Loader};

/// Llama.
pub const LLAMA: Arch = Arch { family: "llama", names: &["LlamaForCausalLM", "LlamaModel", "llama"], load: load_llama };

/// Mistral.
pub const MISTRAL: Arch =
    Arch { family: "mistral", names: &["MistralForCausalLM", "MistralModel", "mistral"], load: load_mistral };

fn load_llama(config: &Config, root: &Loader) -> Result<Built> {
    // More than 1 cuts matrices to repeat a training run's rounding: the same numbers but for that.
    config.size_or("pretraining_tp", 1 << 16, 1)?;
    let bias = config.flag_or("attention_bias", false)?.into();
    let plain = Plain {
        family: LLAMA.family,
        qkv_bias: bias,
        output_bias: bias,
        mlp_bias: config.flag_or("mlp_bias", false)?.into(),
        head_norms: false,
        head_dim: None,
        windows: vec![None; config.size("num_hidden_layers", MAX_LAYERS)?],
    };
    load(config, root, plain)
}

fn load_mistral(config: &Config, root: &Loader) -> Result<Built> {
    let window = match config.is_null("sliding_window") {
        true => None,
        false => Some(config.size_or("sliding_window", MAX_POSITIONS, 4096)?),
    };
    let plain = Plain {
        family: MISTRAL.family,
        qkv_bias: Bias::No,
        output_bias: Bias::No,
        mlp_bias: Bias::No,
        head_norms: false,
        head_dim: None,
        windows: vec![window; config.size("num_hidden_layers", MAX_LAYERS)?],
    };
    load(config, root, plain)
}
