//! The fields that all of OpenAI's text APIs share: how to choose tokens, how many answers, and how they come.

use crate::body::Fields;
use crate::error::Fault;
use inference::sampling::SamplingParams;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most answers to one request.
pub(crate) const MAX_CHOICES: usize = 128;

/// One text or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum Texts {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Texts {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        }
    }
}

/// How a stream comes.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamOptions {
    /// A last chunk with the usage and no choice; `usage` is null in the others.
    #[serde(default)]
    pub(crate) include_usage: Option<bool>,
    /// Only false: chunks carry no padding against eavesdroppers that measure them.
    #[serde(default)]
    pub(crate) include_obfuscation: Option<bool>,
}

/// Choosing tokens and delivering answers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Sampling {
    /// Name of a served model, or one of its aliases. Without it, the first one of its kind.
    pub(crate) model: Option<String>,
    /// Divides the logits; 0 is greedy. Without it, what the model's authors recommend, else 1.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub(crate) temperature: Option<f64>,
    /// Keep the fewest tokens whose probability reaches this; 1 is off.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) top_p: Option<f64>,
    /// Keep the k most likely tokens; 0 is off. (Not OpenAI's.)
    pub(crate) top_k: Option<u32>,
    /// Keep tokens at least this share as likely as the likeliest; 0 is off. (Not OpenAI's.)
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) min_p: Option<f64>,
    /// Keep the tokens nearest to the expected information, up to this mass; 1 is off. (Not OpenAI's.)
    #[schemars(range(min = 0.01, max = 1.0))]
    pub(crate) typical_p: Option<f64>,
    /// Divides positive and multiplies negative logits of tokens that occurred; 1 is off. (Not OpenAI's.)
    #[schemars(range(min = 0.01, max = 100.0))]
    pub(crate) repetition_penalty: Option<f64>,
    /// Subtracted from logits of tokens that occurred in the answer.
    #[schemars(range(min = -2.0, max = 2.0))]
    pub(crate) presence_penalty: Option<f64>,
    /// Subtracted for each time that a token occurred in the answer.
    #[schemars(range(min = -2.0, max = 2.0))]
    pub(crate) frequency_penalty: Option<f64>,
    /// Makes the choice repeatable; of several answers the later ones count on from it.
    pub(crate) seed: Option<i64>,
    /// The answer ends before the earliest of these; 1 to 64 strings of at most 4096 bytes.
    pub(crate) stop: Option<Texts>,
    /// Token ids that end the answer, besides the model's own. (Not OpenAI's.)
    pub(crate) stop_token_ids: Option<Vec<u32>>,
    /// Go on after the model's own end. (Not OpenAI's.)
    pub(crate) ignore_eos: Option<bool>,
    /// Added to logits, by token id: -100 to 100.
    pub(crate) logit_bias: Option<BTreeMap<String, f32>>,
    /// Holds the answer to a grammar, GBNF (rules with `::=`) or Lark. (Not OpenAI's.)
    pub(crate) grammar: Option<String>,
    /// How many answers.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) n: Option<usize>,
    /// Server-sent events while the answer is being made.
    pub(crate) stream: Option<bool>,
    /// How a stream comes; only with `stream`.
    pub(crate) stream_options: Option<StreamOptions>,
    /// Who asks: stands in the log.
    pub(crate) user: Option<String>,
}

impl Fields for Sampling {}

impl Sampling {
    /// The parameters, over those that the model starts from.
    ///
    /// # Errors
    /// A bias for something that is no token id. Ranges are checked against the model later.
    pub(crate) fn over(&self, base: SamplingParams) -> Result<SamplingParams, Fault> {
        let mut logit_bias = Vec::new();
        for (id, bias) in self.logit_bias.iter().flatten() {
            let parsed = id.parse().map_err(|_| {
                Fault::field("logit_bias", format!("logit_bias has the key {id:.40?}, expected token ids in decimals"))
            })?;
            logit_bias.push((parsed, *bias));
        }
        Ok(SamplingParams {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.map_or(base.top_k, |k| k as usize),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            typical_p: self.typical_p.unwrap_or(base.typical_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            seed: self.seed.map(|seed| seed as u64).or(base.seed),
            logit_bias: if logit_bias.is_empty() { base.logit_bias } else { logit_bias },
            max_tokens: base.max_tokens,
            stop: self.stop.clone().map_or(base.stop, Texts::into_vec),
            stop_ids: self.stop_token_ids.clone().unwrap_or(base.stop_ids),
            logprobs: None,
            ignore_eos: self.ignore_eos.unwrap_or(base.ignore_eos),
        })
    }

    /// How many answers.
    ///
    /// # Errors
    /// None, or too many.
    pub(crate) fn choices(&self) -> Result<usize, Fault> {
        match self.n.unwrap_or(1) {
            n @ 1..=MAX_CHOICES => Ok(n),
            n => Err(Fault::field("n", format!("n is {n}, expected 1 to {MAX_CHOICES}"))),
        }
    }

    /// Whether the answer streams, and then whether its usage comes with it.
    ///
    /// # Errors
    /// Options of a stream that is none.
    pub(crate) fn streams(&self) -> Result<Option<bool>, Fault> {
        match (self.stream.unwrap_or(false), &self.stream_options) {
            (false, Some(_)) => Err(Fault::field("stream_options", "stream_options needs stream: true")),
            (false, None) => Ok(None),
            (true, options) => {
                let options = options.unwrap_or_default();
                if options.include_obfuscation == Some(true) {
                    let message = "stream_options.include_obfuscation is not supported: leave it out";
                    return Err(Fault::unsupported("stream_options.include_obfuscation", message));
                }
                Ok(Some(options.include_usage.unwrap_or(false)))
            }
        }
    }
}
