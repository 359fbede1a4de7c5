//! What is counted, for `/metrics`: requests, queue, tokens, times to the first token and between tokens.

use inference::Totals;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Which requests.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answer {
    path: String,
    status: u16,
}

/// Which model.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfModel {
    model: String,
}

/// The counters of a server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answer, Counter>,
    seconds: Histogram,
    first_token: Histogram,
    per_token: Histogram,
    prompt_tokens: Counter,
    completion_tokens: Counter,
    embedded_tokens: Counter,
    cancelled: Counter,
    running: Family<OfModel, Gauge>,
    waiting: Family<OfModel, Gauge>,
    loaded: Family<OfModel, Gauge>,
    pages: Family<OfModel, Gauge>,
    pages_used: Family<OfModel, Gauge>,
    pages_cached: Family<OfModel, Gauge>,
    cache_hits: Family<OfModel, Counter>,
    cached_tokens: Family<OfModel, Counter>,
    evictions: Family<OfModel, Counter>,
    preemptions: Family<OfModel, Counter>,
    drafted: Family<OfModel, Counter>,
    accepted: Family<OfModel, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let times = |start: f64| Histogram::new(exponential_buckets(start, 2.0, 16));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("lattice"),
            requests: Family::default(),
            seconds: times(0.001),
            first_token: times(0.001),
            per_token: times(0.000_5),
            prompt_tokens: Counter::default(),
            completion_tokens: Counter::default(),
            embedded_tokens: Counter::default(),
            cancelled: Counter::default(),
            running: Family::default(),
            waiting: Family::default(),
            loaded: Family::default(),
            pages: Family::default(),
            pages_used: Family::default(),
            pages_cached: Family::default(),
            cache_hits: Family::default(),
            cached_tokens: Family::default(),
            evictions: Family::default(),
            preemptions: Family::default(),
            drafted: Family::default(),
            accepted: Family::default(),
        };
        let r = &mut metrics.registry;
        r.register("requests", "Requests by path and status", metrics.requests.clone());
        r.register_with_unit(
            "request",
            "From a request's head to the head of its answer",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        r.register_with_unit(
            "time_to_first_token",
            "From the queue to a text's first token",
            Unit::Seconds,
            metrics.first_token.clone(),
        );
        r.register_with_unit(
            "time_per_token",
            "Mean time between the tokens of a text",
            Unit::Seconds,
            metrics.per_token.clone(),
        );
        r.register("prompt_tokens", "Tokens of prompts", metrics.prompt_tokens.clone());
        r.register("completion_tokens", "Tokens made", metrics.completion_tokens.clone());
        r.register("embedded_tokens", "Tokens of embedded and ranked texts", metrics.embedded_tokens.clone());
        r.register("cancelled", "Texts that were given up because the client went away", metrics.cancelled.clone());
        r.register("sequences_running", "Texts that are being made", metrics.running.clone());
        r.register("sequences_waiting", "Texts that wait for a place", metrics.waiting.clone());
        r.register("model_loaded", "Whether a model is in memory", metrics.loaded.clone());
        r.register("pages", "Pages of keys and values", metrics.pages.clone());
        r.register("pages_used", "Pages that running texts hold", metrics.pages_used.clone());
        r.register("pages_cached", "Pages kept for texts that begin alike", metrics.pages_cached.clone());
        r.register("cache_hits", "Texts whose beginning was there already", metrics.cache_hits.clone());
        r.register("cached_tokens", "Tokens of prompts that were there already", metrics.cached_tokens.clone());
        r.register("evictions", "Pages given away although they held something", metrics.evictions.clone());
        r.register("preemptions", "Texts that made room for an older one", metrics.preemptions.clone());
        r.register("drafted_tokens", "Tokens that were guessed and checked", metrics.drafted.clone());
        r.register("accepted_tokens", "Guesses that were right", metrics.accepted.clone());
        metrics
    }

    pub(crate) fn answered(&self, path: &str, status: u16, time: Duration) {
        self.requests.get_or_create(&Answer { path: path.to_owned(), status }).inc();
        self.seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn first_token(&self, time: Duration, prompt: usize) {
        self.first_token.observe(time.as_secs_f64());
        self.prompt_tokens.inc_by(prompt as u64);
    }

    pub(crate) fn ended(&self, tokens: usize, decode: Duration) {
        self.completion_tokens.inc_by(tokens as u64);
        if tokens > 1 {
            self.per_token.observe(decode.as_secs_f64() / (tokens - 1) as f64);
        }
    }

    pub(crate) fn embedded(&self, tokens: usize) {
        self.embedded_tokens.inc_by(tokens as u64);
    }

    pub(crate) fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// What an engine counts now, and what was told of it before.
    pub(crate) fn engine(&self, model: &str, now: &Totals, before: &Totals) {
        let label = OfModel { model: model.to_owned() };
        let gauges = [
            (&self.running, now.running),
            (&self.waiting, now.waiting),
            (&self.pages, now.pages),
            (&self.pages_used, now.pages_used),
            (&self.pages_cached, now.pages_cached),
        ];
        for (family, value) in gauges {
            family.get_or_create(&label).set(value as i64);
        }
        let counters = [
            (&self.cache_hits, now.hits, before.hits),
            (&self.cached_tokens, now.cached, before.cached),
            (&self.evictions, now.evictions, before.evictions),
            (&self.preemptions, now.preemptions, before.preemptions),
            (&self.drafted, now.drafted, before.drafted),
            (&self.accepted, now.accepted, before.accepted),
        ];
        for (family, now, before) in counters {
            family.get_or_create(&label).inc_by(now.saturating_sub(before));
        }
    }

    pub(crate) fn loaded(&self, model: &str, loaded: bool) {
        self.loaded.get_or_create(&OfModel { model: model.to_owned() }).set(i64::from(loaded));
    }

    /// All of them in Prometheus' text form.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }
}
