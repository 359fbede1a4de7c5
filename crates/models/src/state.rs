//! What do a model's layers keep of a sequence between forward passes? Layers declare it ([`LayerState`]), the engine
//! makes room for it once ([`Caches`]) and says with every batch which pages and slots are whose ([`ops::Past`]).

use crate::batch::Batch;
use crate::error::{ModelError, Result};
use ops::{KvCache, KvFormat, KvSpec, Ops, StateCache, StateSpec};

/// What a layer keeps of the tokens it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerState {
    /// Keys and values of every token.
    Kv {
        /// Key and value heads.
        kv_heads: usize,
        /// Features of a head.
        head_dim: usize,
        /// Tokens that a query sees at most, itself included.
        window: Option<usize>,
    },
    /// A state of fixed size: a gated delta net's and its convolution's.
    Recurrent {
        /// Features that the convolution runs over.
        channels: usize,
        /// Rows that the convolution spans.
        kernel: usize,
        /// Value heads.
        heads: usize,
        /// Features of a key.
        key_dim: usize,
        /// Features of a value.
        value_dim: usize,
    },
    /// Nothing of its own: it reads the keys and values of this earlier layer.
    Shared(usize),
    /// Nothing.
    None,
}

impl LayerState {
    /// Bytes that a token takes.
    pub fn token_bytes(&self, format: KvFormat) -> usize {
        let LayerState::Kv { kv_heads, head_dim, .. } = *self else { return 0 };
        2 * kv_heads * format.bytes(head_dim)
    }

    /// Bytes that a sequence takes, however long it is.
    pub fn slot_bytes(&self) -> usize {
        let LayerState::Recurrent { channels, kernel, heads, key_dim, value_dim } = *self else { return 0 };
        4 * (channels * kernel + heads * key_dim * value_dim)
    }
}

/// Room for the state of all sequences in one layer.
#[derive(Clone, Debug)]
pub enum LayerCache {
    /// Pages of keys and values.
    Kv(KvCache),
    /// Slots of recurrent state.
    Recurrent(StateCache),
    /// That of an earlier layer.
    Shared(usize),
    /// None.
    None,
}

/// Room for the state of all sequences in all layers.
#[derive(Clone, Debug)]
pub struct Caches {
    /// One for each layer.
    pub layers: Vec<LayerCache>,
    /// Pages of each layer of keys and values.
    pub pages: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Sequences that have a recurrent state.
    pub slots: usize,
}

impl Caches {
    /// Room for `pages` pages of `page_tokens` tokens (a multiple of 16) and for `slots` sequences, for layers that keep
    /// `states`.
    pub fn new(
        ops: &dyn Ops,
        states: &[LayerState],
        pages: usize,
        page_tokens: usize,
        slots: usize,
        format: KvFormat,
    ) -> Caches {
        let layer = |state: &LayerState| match *state {
            LayerState::Kv { kv_heads, head_dim, window: _ } => {
                LayerCache::Kv(ops.kv_cache(KvSpec { pages, page_tokens, kv_heads, head_dim, format }))
            }
            LayerState::Recurrent { channels, kernel, heads, key_dim, value_dim } => {
                LayerCache::Recurrent(ops.state_cache(StateSpec { slots, channels, kernel, heads, key_dim, value_dim }))
            }
            LayerState::Shared(layer) => LayerCache::Shared(layer),
            LayerState::None => LayerCache::None,
        };
        Caches { layers: states.iter().map(layer).collect(), pages, page_tokens, slots }
    }

    /// Does any layer keep a recurrent state?
    pub fn recurrent(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, LayerCache::Recurrent(_)))
    }

    /// Makes page `to` hold what page `from` holds, in every layer.
    pub fn copy_page(&self, ops: &dyn Ops, from: u32, to: u32) {
        for layer in &self.layers {
            if let LayerCache::Kv(cache) = layer {
                ops.copy_page(cache, from, to);
            }
        }
    }

    /// Makes slot `to` hold the state that slot `from` holds, in every layer.
    pub fn copy_state(&self, ops: &dyn Ops, from: u32, to: u32) {
        for layer in &self.layers {
            if let LayerCache::Recurrent(cache) = layer {
                ops.copy_state(cache, from, to);
            }
        }
    }

    /// Is there room for every sequence of this batch where its [`ops::Past`] says it is?
    ///
    /// # Errors
    /// [`ModelError::Pages`] if a sequence's pages do not hold its past and its new tokens, [`ModelError::Place`] for a
    /// page or a slot that is not there.
    pub fn check(&self, batch: &Batch) -> Result<()> {
        for (sequence, (span, past)) in batch.spans.iter().zip(&batch.pasts).enumerate() {
            let tokens = past.tokens.saturating_add(span.len);
            let pages = past.pages.len();
            if self.layers.iter().any(|l| matches!(l, LayerCache::Kv(_))) && tokens > pages * self.page_tokens {
                return Err(ModelError::Pages { sequence, tokens, pages, page_tokens: self.page_tokens });
            }
            if let Some(&page) = past.pages.iter().find(|&&page| page as usize >= self.pages) {
                return Err(ModelError::Place { sequence, what: "page", got: page, limit: self.pages });
            }
            let mut slots = past.saves.iter().map(|save| save.slot).chain([past.slot]);
            if let Some(got) = slots.find(|&slot| slot as usize >= self.slots).filter(|_| self.recurrent()) {
                return Err(ModelError::Place { sequence, what: "slot", got, limit: self.slots });
            }
        }
        Ok(())
    }
}
