//! Log-probabilities in answers: natural logs under the model itself, before any sampling stage.

use inference::sampling::Sampled;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokenizer::Tokenizer;

/// Stands for −∞, which JSON cannot write.
const LOWEST: f32 = -9999.0;

/// A token as chat completions tell of it.
#[derive(Serialize)]
pub(crate) struct TokenLogprob {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<TokenLogprob>>,
}

impl TokenLogprob {
    fn one(tokenizer: &Tokenizer, id: u32, logprob: f32, top: Option<Vec<TokenLogprob>>) -> TokenLogprob {
        let bytes = tokenizer.piece_bytes(id).unwrap_or_default();
        let token = String::from_utf8_lossy(&bytes).into_owned();
        TokenLogprob { token, logprob: logprob.max(LOWEST), bytes, top_logprobs: top }
    }
}

/// `logprobs` of chat completions.
pub(crate) fn chat(tokenizer: &Tokenizer, tokens: &[Sampled]) -> Value {
    let one = |token: &Sampled| {
        let top = token.top.iter().map(|&(id, p)| TokenLogprob::one(tokenizer, id, p, None)).collect();
        TokenLogprob::one(tokenizer, token.id, token.logprob.unwrap_or(LOWEST), Some(top))
    };
    json!({"content": tokens.iter().map(one).collect::<Vec<_>>(), "refusal": null})
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
