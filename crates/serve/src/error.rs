//! What can go wrong: [`ServeError`] keeps the server from starting, a [`Fault`] is the answer to one request.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use embed::EmbedError;
use inference::InferenceError;
use inference::sampling::SamplingError;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::PathBuf;

/// Why the server cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Nothing to serve.
    #[error("no model was named: give at least one (--model)")]
    NoModel,
    /// Two models of one name.
    #[error("two models are named {name}: rename one of them (--alias NAME=MODEL)")]
    SameName {
        /// The name.
        name: String,
    },
    /// An alias of a model that is not served.
    #[error("alias {alias} stands for {model}, which is not served: name it with --model too")]
    AliasOfNothing {
        /// The alias.
        alias: String,
        /// What it stands for.
        model: String,
    },
    /// A model that is none of the kinds that can be served.
    #[error("{name}: cannot tell what kind of model lies in {}: {reason}", path.display())]
    Kind {
        /// Its name.
        name: String,
        /// Where it lies.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; is another server there? --port takes another one, 0 any free one")]
    Bind {
        /// The address.
        address: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// A certificate or its key that cannot be used.
    #[error("TLS: {}: {reason}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A key that could not stand in a header.
    #[error("API key {index} is empty, or has a character that cannot stand in a header: use printable ASCII")]
    Key {
        /// Which of them.
        index: usize,
    },
    /// An origin that a browser would never send.
    #[error("{origin} is no origin: write * or scheme://host[:port]")]
    Origin {
        /// What was given.
        origin: String,
    },
    /// A model could not be opened.
    #[error("{name}: {reason}")]
    Open {
        /// Its name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A line of a batch file that is no request.
    #[error("{} line {line}: {reason}", path.display())]
    BatchLine {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A batch file that cannot be used.
    #[error("cannot {verb} {}: {reason}", path.display())]
    BatchFile {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The server's own work with the network failed.
    #[error("the server ended: {0}")]
    Io(#[from] std::io::Error),
}

/// The answer to a request that is refused or fails, in OpenAI's form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    /// OpenAI's `type`.
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
    /// Which field is meant.
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    /// Seconds after which another try makes sense.
    pub(crate) retry_after: Option<u64>,
}

impl Fault {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Fault {
        Fault { status, kind, code: None, param: None, message: message.into(), retry_after: None }
    }

    /// The request is wrong.
    pub(crate) fn invalid(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field of the request is wrong.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault { param: Some(param.into()), ..Fault::invalid(message) }
    }

    /// A field, or a value of it, that this server knows and does not support.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault { code: Some("unsupported_parameter"), ..Fault::field(param, message) }
    }

    pub(crate) fn with_status(self, status: StatusCode) -> Fault {
        Fault { status, ..self }
    }

    pub(crate) fn with_code(self, code: &'static str) -> Fault {
        Fault { code: Some(code), ..self }
    }

    /// The key is missing or wrong.
    pub(crate) fn unauthorized(message: &str) -> Fault {
        Fault::invalid(message).with_status(StatusCode::UNAUTHORIZED).with_code("invalid_api_key")
    }

    /// No model of that name.
    pub(crate) fn no_model(name: &str, served: &str) -> Fault {
        Fault::field("model", format!("there is no model {name:?}; served are {served}"))
            .with_status(StatusCode::NOT_FOUND)
            .with_code("model_not_found")
    }

    /// The queue is full.
    pub(crate) fn busy(seconds: u64) -> Fault {
        let message = format!("the queue of this model is full: try again in {seconds} s");
        let fault = Fault::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code("queue_full");
        Fault { retry_after: Some(seconds), ..fault }
    }

    /// Not now, but later.
    pub(crate) fn unavailable(message: impl Into<String>, seconds: u64) -> Fault {
        let fault = Fault::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message);
        Fault { retry_after: Some(seconds), ..fault }
    }

    /// It took too long.
    pub(crate) fn timeout(seconds: f64) -> Fault {
        let message = format!("the request took longer than {seconds} s: shorten it, or raise the limit (--timeout)");
        Fault::new(StatusCode::GATEWAY_TIMEOUT, "server_error", message).with_code("timeout")
    }

    /// This server failed.
    pub(crate) fn internal(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// A token's text does not fit, or another fault of a field whose name the message has already.
    pub(crate) fn of_sampling(error: &SamplingError) -> Fault {
        let param = match error {
            SamplingError::OutOfRange { name, .. }
            | SamplingError::NoSuchToken { name, .. }
            | SamplingError::TooMany { name, .. } => name,
            SamplingError::StopLength { .. } => "stop",
            _ => return Fault::internal(error.to_string()),
        };
        let param = match param {
            "stop_ids" => "stop_token_ids",
            other => other,
        };
        Fault::field(param, error.to_string())
    }

    /// A prompt that does not fit. `tokens` says how many it has.
    pub(crate) fn too_long(tokens: impl Display, context: usize, param: &str) -> Fault {
        let message =
            format!("the prompt has {tokens} tokens, but the context is {context}, and one more must fit: shorten it");
        Fault::field(param, message).with_code("context_length_exceeded")
    }

    /// A language model's. `param` is where the text came from.
    pub(crate) fn of_inference(error: &InferenceError, param: &str) -> Fault {
        match error {
            InferenceError::NoTemplate => {
                let message = "this model has no chat template: give it a text to go on with (/v1/completions), or ask an instruct model";
                Fault::field(param, message)
            }
            InferenceError::PromptTooLong { tokens, context } => Fault::too_long(tokens, *context, param),
            InferenceError::Grammar(_) | InferenceError::EmptyPrompt | InferenceError::Model(_) => {
                Fault::field(param, error.to_string())
            }
            InferenceError::Tokenizer(tokenizer::TokenizerError::Template { .. }) => {
                Fault::field(param, error.to_string())
            }
            InferenceError::Sampling(error) => Fault::of_sampling(error),
            _ => Fault::internal(error.to_string()),
        }
    }

    /// An embedder's or a reranker's. `param` is where the texts came from.
    pub(crate) fn of_embed(error: &EmbedError, param: &str) -> Fault {
        match error {
            EmbedError::Query(error) => {
                let fault = Fault::of_embed(error, "query");
                // There is only one.
                Fault { param: fault.param.map(|param| param.replace("[0]", "")), ..fault }
            }
            EmbedError::TooLong { text, tokens, window } => {
                let message = format!(
                    "text {text} has {tokens} tokens, but the window is {window}: shorten it, or set truncate to have it cut"
                );
                Fault::field(format!("{param}[{text}]"), message).with_code("context_length_exceeded")
            }
            EmbedError::Empty { text } => Fault::field(format!("{param}[{text}]"), error.to_string()),
            EmbedError::Dimensions { .. } => Fault::field("dimensions", error.to_string()),
            EmbedError::Prompt { .. } => Fault::field("prompt_name", error.to_string()),
            EmbedError::Inference(InferenceError::Model(_)) => Fault::field(param, error.to_string()),
            _ => Fault::internal(error.to_string()),
        }
    }

    /// OpenAI's envelope.
    pub(crate) fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    /// Anthropic's envelope.
    pub(crate) fn anthropic(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        let message = match &self.param {
            Some(param) if !self.message.starts_with(param.as_str()) => format!("{param}: {}", self.message),
            _ => self.message.clone(),
        };
        json!({"type": "error", "error": {"type": kind, "message": message}})
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // What speaks another form rewrites the body from this.
        response.extensions_mut().insert(self);
        response
    }
}
