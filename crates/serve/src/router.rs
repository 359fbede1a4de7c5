//! Which path leads where, and what stands before every handler: the log, panics, CORS, keys.

use crate::api;
use crate::app::App;
use crate::error::Fault;
use crate::guard::{self, Keys};
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::CorsLayer;

/// The routes of a server.
pub(crate) fn router(app: Arc<App>, keys: Keys, cors: CorsLayer) -> Router {
    let wrong_method = || async {
        let fault = Fault::invalid("this path does not take this method: see /openapi.json");
        fault.with_status(StatusCode::METHOD_NOT_ALLOWED)
    };
    Router::new()
        .route("/v1/chat/completions", post(api::chat::handle))
        .route("/v1/completions", post(api::completions::handle))
        .route("/v1/responses", post(api::responses::handle))
        .route("/v1/messages", post(api::messages::handle))
        .route("/v1/messages/count_tokens", post(api::messages::count_tokens))
        .route("/v1/embeddings", post(api::embeddings::handle))
        .route("/v1/rerank", post(api::rerank::handle))
        .route("/rerank", post(api::rerank::handle))
        .route("/tokenize", post(api::tokens::tokenize))
        .route("/detokenize", post(api::tokens::detokenize))
        .route("/apply-template", post(api::tokens::apply_template))
        .route("/v1/models", get(api::models::list))
        .route("/v1/models/{*name}", get(api::models::one))
        .route("/metrics", get(api::models::metrics))
        .route("/health", get(api::models::health))
        .method_not_allowed_fallback(wrong_method)
        .fallback(|| async {
            Fault::invalid("there is no such path: see /openapi.json").with_status(StatusCode::NOT_FOUND)
        })
        .layer(from_fn_with_state(Arc::new(keys), guard::check_key))
        .layer(CatchPanicLayer::custom(guard::on_panic))
        .layer(cors)
        .layer(from_fn_with_state(app.clone(), guard::log))
        .layer(from_fn(guard::dialect))
        .with_state(app)
}
