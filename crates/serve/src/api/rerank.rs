//! `/v1/rerank`, in the form of Jina's and Cohere's.

use super::embeddings::StopOnDrop;
use crate::app::App;
use crate::body::{Body, Fields};
use crate::error::Fault;
use crate::shelf::Opened;
use axum::Json;
use axum::extract::State;
use embed::{Cancel, Embedder, RerankOptions, Reranker, Score};
use hub::Kind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::timeout;

/// Most passages of a request.
const MAX_DOCUMENTS: usize = 4096;

/// Passages to be ranked.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RerankRequest {
    /// What is asked.
    query: String,
    /// The passages.
    documents: Vec<Document>,
    /// Name of a served reranker, or of an embedder (whose cosine ranks then). Without it, the first reranker, else the
    /// first embedder.
    model: Option<String>,
    /// Only so many of the best.
    #[schemars(range(min = 1))]
    top_n: Option<usize>,
    /// Give each passage back beside its score.
    return_documents: Option<bool>,
    /// Cut pairs that are longer than the window, and say so in `truncated`, instead of refusing them. (Not Cohere's.)
    truncate: Option<bool>,
}

/// A passage.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string, or an object {\"text\": …}")]
enum Document {
    /// As it is.
    Text(String),
    /// In an object.
    Object {
        /// The text.
        text: String,
    },
}

impl Fields for RerankRequest {
    const REFUSED: &'static [(&'static str, &'static str)] = &[
        ("max_chunks_per_doc", "passages are not cut into chunks: truncate is there"),
        ("max_tokens_per_doc", "truncate cuts to the model's window"),
        ("rank_fields", "passages are texts"),
    ];
}

/// Ranks passages.
pub(crate) async fn handle(
    State(app): State<Arc<App>>,
    Body(request, _): Body<RerankRequest>,
) -> Result<Json<Value>, Fault> {
    let count = request.documents.len();
    if count == 0 || count > MAX_DOCUMENTS {
        return Err(Fault::field("documents", format!("documents has {count} entries, expected 1 to {MAX_DOCUMENTS}")));
    }
    if request.top_n == Some(0) {
        return Err(Fault::field("top_n", "top_n is 0, expected at least 1"));
    }
    let slot = app.shelf.find(request.model.as_deref(), &[Kind::Reranker, Kind::Embedder])?;
    let documents: Arc<[String]> = request
        .documents
        .into_iter()
        .map(|document| match document {
            Document::Text(text) | Document::Object { text } => text,
        })
        .collect();
    let (cancel, truncate) = (Cancel::default(), request.truncate.unwrap_or(false));
    let _stop = StopOnDrop(cancel.clone());
    let (query, passages) = (request.query, documents.clone());
    let opened = app.shelf.open(slot).await?;
    let limit = app.limits.answer;
    let (scores, method) = match opened {
        Opened::Reranker(model) => {
            let options = RerankOptions { truncate, cancel };
            let work = model.run(move |model: &Reranker| model.score(&query, &passages, &options));
            let scores = timeout(limit, work).await.map_err(|_| Fault::timeout(limit.as_secs_f64()))??;
            (scores.map_err(|error| Fault::of_embed(&error, "documents"))?, "cross-encoder")
        }
        Opened::Embedder(model) => {
            let options = RerankOptions { truncate, cancel };
            let work = model.run(move |model: &Embedder| model.score(&query, &passages, &options));
            let scores = timeout(limit, work).await.map_err(|_| Fault::timeout(limit.as_secs_f64()))??;
            (scores.map_err(|error| Fault::of_embed(&error, "documents"))?, "cosine")
        }
        Opened::Chat(_) => return Err(Fault::internal("a reranker that is none")),
    };
    let tokens: usize = scores.iter().map(|score| score.tokens).sum();
    app.metrics.embedded(tokens);
    let mut scores = scores;
    Score::sort(&mut scores);
    scores.truncate(request.top_n.unwrap_or(usize::MAX));
    let with_text = request.return_documents.unwrap_or(false);
    let result = |score: &Score| {
        let mut result = json!({"index": score.index, "relevance_score": score.score});
        if with_text {
            result["document"] = json!({"text": documents[score.index]});
        }
        if score.truncated {
            result["truncated"] = true.into();
        }
        result
    };
    Ok(Json(json!({
        "object": "list",
        "model": slot.spec.name,
        "method": method,
        "results": scores.iter().map(result).collect::<Vec<_>>(),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}
