//! Which path leads where, and what stands before every handler: the log, panics, CORS, keys.

use crate::api;
use crate::app::App;
use crate::endpoints::ENDPOINTS;
use crate::error::Fault;
use crate::guard::{self, Keys};
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::post;
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::CorsLayer;

/// The routes of a server.
pub(crate) fn router(app: Arc<App>, keys: Keys, cors: CorsLayer) -> Router {
    let wrong_method = || async {
        let fault = Fault::invalid("this path does not take this method: see /openapi.json");
        fault.with_status(StatusCode::METHOD_NOT_ALLOWED)
    };
    let mut router = Router::new().route("/rerank", post(api::rerank::handle));
    for endpoint in ENDPOINTS.iter() {
        // Names of models have slashes.
        let path = endpoint.path.replace("{model}", "{*model}");
        router = router.route(&path, (endpoint.route)());
    }
    router
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
