//! `/tokenize`, `/detokenize` and `/apply-template`: what a model sees.

use crate::app::App;
use crate::ask::render;
use crate::body::{Body, Fields};
use crate::conversation::{Message, for_template};
use crate::error::Fault;
use crate::shelf::Opened;
use crate::tools::{ToolDeclaration, Toolbox};
use axum::Json;
use axum::extract::State;
use hub::Kind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokenizer::Tokenizer;

/// A text to be taken apart.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TokenizeRequest {
    /// The text.
    content: String,
    /// Name of a served language model or embedder. Without it, the first language model, else the first embedder.
    model: Option<String>,
    /// Whether the model's own special tokens are put around it; not by default.
    add_special: Option<bool>,
    /// Whether special tokens that stand in the text are recognised, as by default, or are text like any other.
    parse_special: Option<bool>,
    /// Whether each token comes with its text: `{"id", "piece"}` instead of the id alone.
    with_pieces: Option<bool>,
}

impl Fields for TokenizeRequest {}

/// Ids to be put together.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DetokenizeRequest {
    /// The ids.
    tokens: Vec<u32>,
    /// Name of a served language model or embedder. Without it, the first language model, else the first embedder.
    model: Option<String>,
    /// Whether special tokens are left out; not by default.
    skip_special: Option<bool>,
}

impl Fields for DetokenizeRequest {}

/// A conversation to be rendered.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TemplateRequest {
    /// The conversation.
    messages: Vec<Message>,
    /// Name of a served language model. Without it, the first one.
    model: Option<String>,
    /// Tools that the model is told of.
    tools: Option<Vec<ToolDeclaration>>,
    /// Further variables of the template: only `enable_thinking` is known.
    chat_template_kwargs: Option<super::chat::TemplateVariables>,
}

impl Fields for TemplateRequest {}

async fn tokenizer(app: &App, model: Option<&str>) -> Result<Tokenizer, Fault> {
    let slot = app.shelf.find(model, &[Kind::Chat, Kind::Embedder])?;
    Ok(match app.shelf.open(slot).await? {
        Opened::Chat(speaker) => speaker.model.tokenizer().clone(),
        Opened::Embedder(turn) => turn.model.tokenizer().clone(),
        Opened::Reranker(_) => return Err(Fault::field("model", "a reranker's tokenizer is not served")),
    })
}

/// Runs what may take long on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    let work = tokio::task::spawn_blocking(work);
    work.await.unwrap_or_else(|error| Err(Fault::internal(format!("an internal error: {error}"))))
}

/// `/tokenize`.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    Body(request, _): Body<TokenizeRequest>,
) -> Result<Json<Value>, Fault> {
    let tokenizer = tokenizer(&app, request.model.as_deref()).await?;
    blocking(move || {
        let options = tokenizer::EncodeOptions {
            add_special: request.add_special.unwrap_or(false),
            plain: !request.parse_special.unwrap_or(true),
            truncation: None,
        };
        let (ids, _) = tokenizer
            .encode_ids_with(&request.content, &options)
            .map_err(|error| Fault::field("content", error.to_string()))?;
        let piece = |&id: &u32| {
            let bytes = tokenizer.piece_bytes(id).unwrap_or_default();
            // What is no text by itself is given as its bytes.
            let piece = String::from_utf8(bytes).map_or_else(|e| json!(e.into_bytes()), |text| json!(text));
            json!({"id": id, "piece": piece})
        };
        let tokens = match request.with_pieces.unwrap_or(false) {
            true => json!(ids.iter().map(piece).collect::<Vec<_>>()),
            false => json!(ids),
        };
        Ok(Json(json!({"tokens": tokens, "count": ids.len()})))
    })
    .await
}

/// `/detokenize`.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    Body(request, _): Body<DetokenizeRequest>,
) -> Result<Json<Value>, Fault> {
    let tokenizer = tokenizer(&app, request.model.as_deref()).await?;
    blocking(move || {
        if let Some(id) = request.tokens.iter().find(|&&id| tokenizer.id_to_token(id).is_none()) {
            let message = format!("tokens has id {id}, which this model does not have");
            return Err(Fault::field("tokens", message));
        }
        let content = tokenizer.decode(&request.tokens, request.skip_special.unwrap_or(false));
        Ok(Json(json!({"content": content})))
    })
    .await
}

/// `/apply-template`.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    Body(request, _): Body<TemplateRequest>,
) -> Result<Json<Value>, Fault> {
    let speaker = app.shelf.chat(request.model.as_deref()).await?;
    let messages = for_template(request.messages, "messages")?;
    let toolbox = Toolbox::new(request.tools, None, None)?;
    let thinking = request.chat_template_kwargs.and_then(|variables| variables.enable_thinking);
    blocking(move || {
        let prompt = render(&speaker, messages, &toolbox, thinking, "messages")?;
        Ok(Json(json!({"prompt": prompt})))
    })
    .await
}
