//! Log-probabilities in answers: natural logs under the model itself, before any sampling stage.

use inference::sampling::Sampled;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokenizer::Tokenizer;

/// Stands for −∞, which JSON cannot write.
const LOWEST: f32 = -9999.0;

/// The log-probability of a token, as OpenAI's API writes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TokenLogprob {
    token: String,
    /// None for a text's first token, which nothing foretold.
    logprob: Option<f32>,
    bytes: Vec<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<TokenLogprob>>,
}

impl TokenLogprob {
    /// Of an id; `top` are the likeliest in its place.
    pub fn new(tokenizer: &Tokenizer, id: u32, logprob: Option<f32>, top: &[(u32, f32)]) -> TokenLogprob {
        let one = |id: u32, logprob: Option<f32>, top_logprobs| {
            let bytes = tokenizer.piece_bytes(id).unwrap_or_default();
            let token = String::from_utf8_lossy(&bytes).into_owned();
            TokenLogprob { token, bytes, logprob: logprob.map(|p| p.max(LOWEST)), top_logprobs }
        };
        one(id, logprob, Some(top.iter().map(|&(id, logprob)| one(id, Some(logprob), None)).collect()))
    }

    /// Of the tokens of a text.
    pub fn all(tokenizer: &Tokenizer, tokens: &[Sampled]) -> Vec<TokenLogprob> {
        tokens.iter().map(|t| TokenLogprob::new(tokenizer, t.id, t.logprob, &t.top)).collect()
    }
}

/// `logprobs` of chat completions.
pub(crate) fn chat(tokenizer: &Tokenizer, tokens: &[Sampled]) -> Value {
    json!({"content": TokenLogprob::all(tokenizer, tokens), "refusal": null})
}

/// `logprobs` of completions; `offset` counts the characters of the text before, and goes on.
pub(crate) fn text(tokenizer: &Tokenizer, tokens: &[Sampled], offset: &mut usize) -> Value {
    let piece = |id: u32| String::from_utf8_lossy(&tokenizer.piece_bytes(id).unwrap_or_default()).into_owned();
    let (mut texts, mut logprobs, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for token in tokens {
        let text = piece(token.id);
        offsets.push(*offset);
        *offset += text.chars().count();
        texts.push(text);
        logprobs.push(token.logprob.unwrap_or(LOWEST).max(LOWEST));
        let mut top = Map::new();
        for &(id, logprob) in &token.top {
            // Two tokens of the same text: the likelier one stands.
            top.entry(piece(id)).or_insert_with(|| logprob.max(LOWEST).into());
        }
        tops.push(Value::Object(top));
    }
    json!({"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets})
}
