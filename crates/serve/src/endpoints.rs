//! The table of endpoints: the router, `/openapi.json`, `/v1/capabilities` and the tables of docs/serving.md all follow
//! it. Fields are those of the request types.

use crate::api::{chat, completions, embeddings, messages, models, rerank, responses, sampling, tokens};
use crate::app::App;
use crate::body::{Body, Fields, Nothing};
use axum::routing::{MethodRouter, get, post};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};
use std::sync::{Arc, LazyLock};

/// What a client may ask.
pub(crate) struct Endpoint {
    /// Its path, as documents write it.
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// The request, for those that have a body.
    pub(crate) request: Option<Request>,
    /// Whether `stream` makes it answer in server-sent events.
    pub(crate) streams: bool,
    /// What answers.
    pub(crate) route: fn() -> MethodRouter<Arc<App>>,
}

/// Of a body.
pub(crate) struct Request {
    /// Its JSON Schema.
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    /// Fields that others have and this server refuses, with the reason.
    pub(crate) refused: fn() -> Vec<(&'static str, &'static str)>,
}

fn request<A: Fields, B: Fields>() -> Option<Request> {
    Some(Request { schema: Body::<A, B>::schema, refused: || A::REFUSED.iter().chain(B::REFUSED).copied().collect() })
}

/// All endpoints.
pub(crate) static ENDPOINTS: LazyLock<Vec<Endpoint>> = LazyLock::new(table);

fn table() -> Vec<Endpoint> {
    vec![
        Endpoint {
            path: "/v1/chat/completions",
            summary: "Continues a conversation, as OpenAI's chat API",
            request: request::<chat::ChatRequest, sampling::Sampling>(),
            streams: true,
            route: || post(chat::handle),
        },
        Endpoint {
            path: "/v1/completions",
            summary: "Continues a text, without a chat template",
            request: request::<completions::CompletionRequest, sampling::Sampling>(),
            streams: true,
            route: || post(completions::handle),
        },
        Endpoint {
            path: "/v1/responses",
            summary: "Continues a conversation, as OpenAI's responses API",
            request: request::<responses::ResponseRequest, Nothing>(),
            streams: true,
            route: || post(responses::handle),
        },
        Endpoint {
            path: "/v1/messages",
            summary: "Continues a conversation, as Anthropic's API; errors have Anthropic's form",
            request: request::<messages::Talk, messages::Making>(),
            streams: true,
            route: || post(messages::handle),
        },
        Endpoint {
            path: "/v1/messages/count_tokens",
            summary: "Counts the tokens of a conversation",
            request: request::<messages::Talk, Nothing>(),
            streams: false,
            route: || post(messages::count_tokens),
        },
        Endpoint {
            path: "/v1/embeddings",
            summary: "Vectors of texts",
            request: request::<embeddings::EmbeddingRequest, Nothing>(),
            streams: false,
            route: || post(embeddings::handle),
        },
        Endpoint {
            path: "/v1/rerank",
            summary: "Passages by their relevance to a query, best first",
            request: request::<rerank::RerankRequest, Nothing>(),
            streams: false,
            route: || post(rerank::handle),
        },
        Endpoint {
            path: "/tokenize",
            summary: "Token ids of a text",
            request: request::<tokens::TokenizeRequest, Nothing>(),
            streams: false,
            route: || post(tokens::tokenize),
        },
        Endpoint {
            path: "/detokenize",
            summary: "The text of token ids",
            request: request::<tokens::DetokenizeRequest, Nothing>(),
            streams: false,
            route: || post(tokens::detokenize),
        },
        Endpoint {
            path: "/apply-template",
            summary: "The text that a model sees of a conversation",
            request: request::<tokens::TemplateRequest, Nothing>(),
            streams: false,
            route: || post(tokens::apply_template),
        },
        Endpoint {
            path: "/v1/models",
            summary: "The models that are served",
            request: None,
            streams: false,
            route: || get(models::list),
        },
        Endpoint {
            path: "/v1/models/{model}",
            summary: "One of them, by name or alias",
            request: None,
            streams: false,
            route: || get(models::one),
        },
        Endpoint {
            path: "/v1/capabilities",
            summary: "What is supported, by endpoint and field",
            request: None,
            streams: false,
            route: || get(crate::documents::capabilities),
        },
        Endpoint {
            path: "/openapi.json",
            summary: "This server as an OpenAPI document",
            request: None,
            streams: false,
            route: || get(crate::documents::openapi),
        },
        Endpoint {
            path: "/health",
            summary: "200 when the models are there, 503 before and while the server ends; needs no key",
            request: None,
            streams: false,
            route: || get(models::health),
        },
        Endpoint {
            path: "/metrics",
            summary: "Counters in Prometheus' text form",
            request: None,
            streams: false,
            route: || get(models::metrics),
        },
    ]
}

/// What makes schemas, all of one document.
pub(crate) fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator()
}

/// A supported field, for documents.
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: String,
    /// What it does.
    pub(crate) help: String,
    /// Whether a request must have it.
    pub(crate) required: bool,
}

impl Endpoint {
    /// The fields of its body.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let Some(request) = &self.request else { return Vec::new() };
        let schema = (request.schema)(&mut generator());
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required = schema.get("required").and_then(Value::as_array);
        properties
            .iter()
            .map(|(name, field)| Field {
                name: name.clone(),
                help: field["description"].as_str().unwrap_or_default().replace('\n', " "),
                required: required.is_some_and(|required| required.iter().any(|other| other == name)),
            })
            .collect()
    }
}

/// The endpoints with their fields as Markdown, for docs/serving.md.
pub fn markdown() -> String {
    let mut text = String::from("| endpoint | |\n|---|---|\n");
    for endpoint in ENDPOINTS.iter() {
        text += &format!("| `{}` | {} |\n", endpoint.path, endpoint.summary);
    }
    for endpoint in ENDPOINTS.iter() {
        let Some(request) = &endpoint.request else { continue };
        text += &format!("\n### `{}`\n\n| field | |\n|---|---|\n", endpoint.path);
        for field in endpoint.fields() {
            let needed = if field.required { " (required)" } else { "" };
            text += &format!("| `{}`{needed} | {} |\n", field.name, field.help.replace('|', "\\|"));
        }
        for (name, why) in (request.refused)() {
            text += &format!("| ~~`{name}`~~ | refused: {why} |\n");
        }
    }
    text
}
