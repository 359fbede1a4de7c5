//! BERT's tokenization of plain ASCII, without the alignments and copies that the general pipeline makes.
//!
//! A text falls apart at white space, and each run between is encoded by itself. A run of ASCII without added tokens is
//! lower-cased, split at punctuation and matched here; any other run takes the general way. The ids are the same, which
//! `tests/fast.rs` holds; tokenization was a tenth of the time of embedding short texts.

use tokenizers::models::ModelWrapper;
use tokenizers::tokenizer::Model as _;
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper};

use crate::config::Added;
use crate::pipeline::{Model, Normalizer, Parts};
use crate::sentencepiece::Trie;

pub(crate) struct WordPiece {
    /// Pieces that begin a word, and pieces that go on with one (without their mark).
    starts: Trie,
    rests: Trie,
    unknown: u32,
    longest_word: usize,
    lowercase: bool,
    /// Added tokens by their first byte.
    added: Vec<Vec<Box<[u8]>>>,
}

impl WordPiece {
    /// Takes a pipeline that is BERT's in every part; none for others.
    pub(crate) fn new(parts: &Parts) -> Option<Self> {
        let (
            Some(Normalizer::Hf(NormalizerWrapper::BertNormalizer(normalizer))),
            Model::Hf(ModelWrapper::WordPiece(model)),
        ) = (&parts.normalizer, &parts.model)
        else {
            return None;
        };
        let bert =
            matches!(parts.pre_tokenizer, Some(PreTokenizerWrapper::BertPreTokenizer(_))) && normalizer.clean_text;
        // Tokens that are looked for in normalised text, or across white space, do not fall apart with the text.
        let whole = |t: &Added| !t.normalized && !t.content.contains(char::is_whitespace);
        if !bert || !parts.added.iter().all(whole) {
            return None;
        }
        let mut added = vec![Vec::new(); 256];
        for token in parts.added.iter().filter(|t| !t.content.is_empty()) {
            added[usize::from(token.content.as_bytes()[0])].push(token.content.as_bytes().into());
        }
        let vocab = model.get_vocab();
        let mark = model.continuing_subword_prefix.as_str();
        let rests = vocab.iter().filter_map(|(t, &id)| Some((t.strip_prefix(mark).filter(|t| !t.is_empty())?, id)));
        Some(Self {
            starts: Trie::new(vocab.iter().filter(|(t, _)| !t.is_empty()).map(|(t, &id)| (t.as_str(), id))),
            rests: Trie::new(rests),
            unknown: *vocab.get(&model.unk_token)?,
            longest_word: model.max_input_chars_per_word,
            lowercase: normalizer.lowercase,
            added,
        })
    }

    /// Appends the ids of a text; `general` does so for what is not plain.
    pub(crate) fn encode<E>(
        &self,
        text: &str,
        ids: &mut Vec<u32>,
        mut general: impl FnMut(&str, &mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut word = Vec::with_capacity(64);
        for run in text.split([' ', '\t', '\n', '\r']).filter(|run| !run.is_empty()) {
            if self.is_plain(run.as_bytes()) {
                self.run(run.as_bytes(), &mut word, ids);
            } else {
                general(run, ids)?;
            }
        }
        Ok(())
    }

    fn is_plain(&self, run: &[u8]) -> bool {
        let plain = |(at, &byte): (usize, &u8)| {
            let added = &self.added[usize::from(byte)];
            byte < 0x80 && (added.is_empty() || !added.iter().any(|t| run[at..].starts_with(t)))
        };
        run.iter().enumerate().all(plain)
    }

    fn run(&self, run: &[u8], word: &mut Vec<u8>, ids: &mut Vec<u32>) {
        for &byte in run {
            if byte.is_ascii_punctuation() {
                self.word(word, ids);
                word.clear();
                self.word(&[byte], ids);
            } else if !byte.is_ascii_control() {
                word.push(if self.lowercase { byte.to_ascii_lowercase() } else { byte });
            }
        }
        self.word(word, ids);
        word.clear();
    }

    /// The longest piece first, again and again; a word with an unmatched rest is unknown as a whole.
    fn word(&self, word: &[u8], ids: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        let before = ids.len();
        let mut rest = word;
        let mut trie = &self.starts;
        while let (false, Some((length, id))) = (word.len() > self.longest_word, trie.longest(rest)) {
            ids.push(id);
            rest = &rest[length..];
            trie = &self.rests;
            if rest.is_empty() {
                return;
            }
        }
        ids.truncate(before);
        ids.push(self.unknown);
    }
}
