//! Embedding behind an async trait, for applications on tokio and for those that want to swap the implementation.

use crate::embedder::{Embedder, Embedding};
use crate::error::EmbedError;
use crate::options::{Cancel, EmbedOptions};
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Something that embeds texts: this process, a server, a cache in front of either.
#[async_trait]
pub trait EmbeddingService: Send + Sync {
    /// The vectors of texts, in their order. Dropping the future stops the work at the next forward pass.
    async fn embed(&self, texts: Vec<String>, options: EmbedOptions) -> Result<Vec<Embedding>, EmbedError>;

    /// Features of a vector.
    fn dimensions(&self) -> usize;

    /// The longest input in tokens.
    fn window(&self) -> usize;
}

/// Embeds in this process, on threads that may block.
///
/// Calls run one after another, each on all threads of the executor: side by side they would only take cores and cache
/// from each other.
#[derive(Clone)]
pub struct NativeEmbeddingService {
    embedder: Arc<Embedder>,
    turn: Arc<Semaphore>,
}

impl NativeEmbeddingService {
    /// A service over an open model.
    pub fn new(embedder: impl Into<Arc<Embedder>>) -> NativeEmbeddingService {
        NativeEmbeddingService { embedder: embedder.into(), turn: Arc::new(Semaphore::new(1)) }
    }

    /// Opens a model by its name in the catalog, by `org/name` on the Hub, or by its folder, fetching it if need be.
    pub async fn from_name(name: &str) -> Result<NativeEmbeddingService, EmbedError> {
        let name = name.to_owned();
        let embedder = tokio::task::spawn_blocking(move || Embedder::from_name(&name)).await;
        Ok(NativeEmbeddingService::new(embedder.expect("opening a model does not panic")?))
    }

    /// The blocking twin.
    pub fn embedder(&self) -> &Arc<Embedder> {
        &self.embedder
    }
}

/// Stops the work when the future that waits for it is dropped.
struct StopOnDrop(Cancel);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[async_trait]
impl EmbeddingService for NativeEmbeddingService {
    async fn embed(&self, texts: Vec<String>, options: EmbedOptions) -> Result<Vec<Embedding>, EmbedError> {
        let turn = self.turn.clone().acquire_owned().await.expect("nobody closes the semaphore");
        let (embedder, outer) = (self.embedder.clone(), options.cancel.clone());
        let stop = StopOnDrop(Cancel::linked(&outer));
        let options = EmbedOptions { cancel: stop.0.clone(), ..options };
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            embedder.embed(&texts, &options)
        });
        work.await.expect("embedding does not panic")
    }

    fn dimensions(&self) -> usize {
        self.embedder.dimensions()
    }

    fn window(&self) -> usize {
        self.embedder.window()
    }
}
