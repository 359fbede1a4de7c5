//! From a row of logits to a token: what a user may ask for ([`SamplingParams`]), and the chain of stages that does it.
//!
//! [`Sampler::sample`] runs the stages in this order, each of them a [`Stage`] over [`Candidates`]:
//!
//! 1. the grammar's mask (only allowed tokens stay),
//! 2. logit bias,
//! 3. repetition penalty, once for each id of prompt and output,
//! 4. presence and frequency penalties, over the output only,
//! 5. temperature,
//! 6. top-k, 7. top-p, 8. min-p, 9. typical-p, each on what the one before left,
//! 10. the draw.
//!
//! That is the order of Hugging Face's processors and warpers, and each stage gives their numbers. A temperature of 0
//! takes the most likely token after stage 4, the lowest id among equals. Log-probabilities are those of the model: the
//! natural log of the softmax of the logits before any stage, as in OpenAI's API and vLLM.
//!
//! The draw depends on the seed and on how many tokens were generated, on nothing else: not on the other sequences of
//! the batch, and a sequence that is computed again after its pages were taken goes on as it did before.
//!
//! ```
//! use lattice_inference::sampling::{History, Sampler, SamplingParams};
//!
//! let params = SamplingParams { temperature: 0.7, top_k: 2, seed: Some(1), ..Default::default() };
//! let mut sampler = Sampler::new(params, 4)?;
//! let sampled = sampler.sample(&mut [0.0, 3.0, 2.5, -1.0], History { prompt: &[0], generated: &[] }, None)?;
//! assert!(sampled.id == 1 || sampled.id == 2);
//! # Ok::<(), lattice_inference::sampling::SamplingError>(())
//! ```

mod candidates;
mod defaults;
mod error;
mod inference_config;
mod numeric;
mod params;
mod random;
mod sampler;
mod select;
mod ties;

pub use candidates::{Candidates, Stage};
pub use defaults::SamplingDefaults;
pub use error::SamplingError;
pub use inference_config::InferenceConfig;
pub use params::{MAX_LOGPROBS, MAX_STOP_BYTES, MAX_STOPS, SamplingParams};
pub use sampler::{Guess, History, Sampled, Sampler};
