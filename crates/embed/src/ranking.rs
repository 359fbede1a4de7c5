//! Query and passage to score, by the vectors of an embedder that reads each by itself.

use crate::distance::cosine;
use crate::embedder::{Embedder, Embedding};
use crate::error::EmbedError;
use crate::options::{EmbedOptions, Prompt, RerankOptions};
use crate::reranker::Score;

impl Embedder {
    /// The cosines of passages with a query, in the order of the passages, with the model's prompts for the two sides
    /// where it has them. The query's tokens count with the first passage's.
    ///
    /// # Errors
    /// [`EmbedError::Query`] for what is wrong with the query, otherwise that of the passages.
    pub fn score<S: AsRef<str> + Sync>(
        &self,
        query: &str,
        passages: &[S],
        options: &RerankOptions,
    ) -> Result<Vec<Score>, EmbedError> {
        let with = |names: &[&str]| {
            let known = names.iter().find(|name| self.modules().prompts.contains_key(**name));
            let prompt = known.map_or(Prompt::Default, |name| Prompt::Name((*name).to_owned()));
            EmbedOptions {
                prompt,
                truncate: options.truncate,
                cancel: options.cancel.clone(),
                ..EmbedOptions::default()
            }
        };
        let query = self.embed(&[query], &with(&["query"])).map_err(|error| match error {
            EmbedError::Cancelled => error,
            error => EmbedError::Query(Box::new(error)),
        })?;
        let passages = self.embed(passages, &with(&["passage", "document"]))?;
        let score = |passage: Embedding| Score {
            index: passage.index,
            score: cosine(&query[0].vector, &passage.vector),
            tokens: passage.tokens + if passage.index == 0 { query[0].tokens } else { 0 },
            truncated: passage.truncated || query[0].truncated,
        };
        Ok(passages.into_iter().map(score).collect())
    }
}
