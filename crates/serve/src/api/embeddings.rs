//! `/v1/embeddings`.

use super::completions::Prompts;
use crate::app::App;
use crate::body::{Body, Fields};
use crate::error::Fault;
use crate::shelf::{Opened, Turn};
use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use embed::{Cancel, EmbedError, EmbedOptions, Embedder, Embedding, Prompt};
use hub::Kind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::timeout;

/// Most texts of a request.
const MAX_INPUTS: usize = 4096;

/// Texts to be embedded.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct EmbeddingRequest {
    /// A text, token ids (special tokens included or not: they are taken as they are), or a list of either.
    input: Prompts,
    /// Name of a served embedder, or one of its aliases. Without it, the first one.
    model: Option<String>,
    /// How vectors are written: a list of numbers, or the bytes of little-endian float32 in base64.
    encoding_format: Option<Encoding>,
    /// Keep the first so many features, for models that were trained for it.
    dimensions: Option<usize>,
    /// Name of the model's prompt that is put before each text: query, passage, …; only with texts. (Not OpenAI's.)
    prompt_name: Option<String>,
    /// Cut texts that are longer than the window, and say so in `truncated`, instead of refusing them. (Not OpenAI's.)
    truncate: Option<bool>,
    /// Who asks: stands in the log.
    user: Option<String>,
}

/// How vectors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// A list of numbers.
    Float,
    /// Little-endian float32 in base64.
    Base64,
}

impl Fields for EmbeddingRequest {}

/// Embeds texts.
pub(crate) async fn handle(
    State(app): State<Arc<App>>,
    Body(request, _): Body<EmbeddingRequest>,
) -> Result<Json<Value>, Fault> {
    let slot = app.shelf.find(request.model.as_deref(), &[Kind::Embedder])?;
    if let Some(user) = &request.user {
        tracing::info!(user, "embeds");
    }
    let Opened::Embedder(model) = app.shelf.open(slot).await? else {
        return Err(Fault::internal("an embedder that is none"));
    };
    let format = request.encoding_format.unwrap_or(Encoding::Float);
    let work = embed_all(&model, request);
    let embeddings =
        timeout(app.limits.answer, work).await.map_err(|_| Fault::timeout(app.limits.answer.as_secs_f64()))??;
    let tokens: usize = embeddings.iter().map(|e| e.tokens).sum();
    app.metrics.embedded(tokens);
    let data: Vec<Value> = embeddings.into_iter().map(|e| object(e, format)).collect();
    Ok(Json(json!({
        "object": "list",
        "data": data,
        "model": model.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}

/// Stops the work when the request that waits for it goes away.
pub(crate) struct StopOnDrop(pub(crate) Cancel);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn embed_all(model: &Turn<Embedder>, request: EmbeddingRequest) -> Result<Vec<Embedding>, Fault> {
    let cancel = Cancel::default();
    let _stop = StopOnDrop(cancel.clone());
    let prompt = request.prompt_name.map_or(Prompt::Default, Prompt::Name);
    let options = EmbedOptions {
        prompt,
        dimensions: request.dimensions,
        truncate: request.truncate.unwrap_or(false),
        normalize: None,
        cancel,
    };
    let count = match &request.input {
        Prompts::Text(_) | Prompts::Ids(_) => 1,
        Prompts::Texts(texts) => texts.len(),
        Prompts::Lists(lists) => lists.len(),
    };
    if count == 0 || count > MAX_INPUTS {
        return Err(Fault::field("input", format!("input has {count} entries, expected 1 to {MAX_INPUTS}")));
    }
    let tokens = matches!(request.input, Prompts::Ids(_) | Prompts::Lists(_));
    if tokens && matches!(options.prompt, Prompt::Name(_)) {
        let message = "prompt_name is put before texts: with token ids, put its tokens there yourself";
        return Err(Fault::unsupported("prompt_name", message));
    }
    let single = matches!(request.input, Prompts::Text(_) | Prompts::Ids(_));
    let work = move |embedder: &Embedder| match request.input {
        Prompts::Text(text) => embedder.embed(&[text], &options),
        Prompts::Texts(texts) => embedder.embed(&texts, &options),
        Prompts::Ids(ids) => embedder.embed_tokens(&[ids], &options),
        Prompts::Lists(lists) => embedder.embed_tokens(&lists, &options),
    };
    model.run(work).await?.map_err(|error| {
        let fault = Fault::of_embed(&error, "input");
        match error {
            EmbedError::TooLong { .. } | EmbedError::Empty { .. } if single => {
                Fault { param: Some("input".into()), ..fault }
            }
            _ => fault,
        }
    })
}

fn object(embedding: Embedding, format: Encoding) -> Value {
    let vector = match format {
        Encoding::Float => json!(embedding.vector),
        Encoding::Base64 => {
            let bytes: Vec<u8> = embedding.vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            json!(BASE64_STANDARD.encode(bytes))
        }
    };
    let mut object = json!({"object": "embedding", "index": embedding.index, "embedding": vector});
    if embedding.truncated {
        object["truncated"] = true.into();
    }
    object
}
