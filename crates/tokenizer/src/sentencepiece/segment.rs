//! From normalised text to pieces: unigram by Viterbi, BPE by best score first, as in `unigram_model.cc`
//! (`EncodeOptimized`) and `bpe_model.cc` of the library.

use std::collections::HashMap;
use std::sync::Arc;

use super::Kind;
use crate::borders::Borders;
use crate::merge::Part;
use crate::model::{Model, Scratch, Tokens, remembered};
use crate::text::Text;
use crate::trie::Trie;
use crate::vocab::{Builder, Vocab};

/// How pieces are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Unigram,
    Bpe,
}

/// A vocabulary of scored pieces.
pub(crate) struct Segmenter {
    /// Pieces by their numbers.
    pieces: Vocab,
    scores: Vec<f32>,
    kinds: Vec<Kind>,
    /// Normal and user-defined pieces, for unigram.
    trie: Trie,
    symbols: Arc<Trie>,
    algorithm: Algorithm,
    unknown: u32,
    /// Piece for each byte, if unknown characters are spelled in bytes.
    bytes: Option<Box<[u32; 256]>>,
    /// Where a text can be cut before merging.
    borders: Option<Borders>,
    any_unused: bool,
    unknown_score: f32,
    max_score: f32,
    /// Ids as the model knows them where they are not the pieces' numbers (fairseq), with the way back.
    renumbered: Option<(Vec<u32>, HashMap<u32, u32>)>,
    /// Entries beyond the pieces.
    extra: HashMap<String, u32>,
    extra_by_id: HashMap<u32, String>,
}

/// Below the worst piece by this much lies an unknown character.
const UNKNOWN_PENALTY: f32 = 10.0;

impl Segmenter {
    /// Pieces are not empty, finite, and one of them stands for the unknown.
    ///
    /// # Errors
    /// No piece for the unknown, or for a byte where characters may be spelled.
    pub(crate) fn new<'a>(
        pieces: impl IntoIterator<Item = (&'a str, f32, Kind)>,
        algorithm: Algorithm,
        byte_fallback: bool,
    ) -> Result<Self, String> {
        let mut builder = Builder::default();
        let (mut scores, mut kinds) = (Vec::new(), Vec::new());
        for (text, score, kind) in pieces {
            builder.push(text.as_bytes())?;
            scores.push(score);
            kinds.push(kind);
        }
        let pieces = builder.build();
        let of_kind = |wanted: &[Kind]| -> Vec<(&str, u32)> {
            let numbered = kinds.iter().zip(0..).filter(|(kind, _)| wanted.contains(kind));
            let found = numbered.filter_map(|(_, i)| Some((pieces.text(i)?, i)));
            found.filter(|&(text, i)| pieces.get(text.as_bytes()) == Some(i)).collect()
        };
        let symbols = Arc::new(Trie::new(of_kind(&[Kind::UserDefined])));
        let trie = match algorithm {
            Algorithm::Bpe => Trie::default(),
            Algorithm::Unigram => Trie::new(of_kind(&[Kind::Normal, Kind::UserDefined])),
        };
        let normal = || scores.iter().zip(&kinds).filter(|(_, kind)| **kind == Kind::Normal).map(|(score, _)| *score);
        let unknown = kinds.iter().position(|k| *k == Kind::Unknown).ok_or("no piece stands for the unknown")? as u32;
        let bytes = if byte_fallback {
            let mut ids = Box::new([0; 256]);
            for (byte, id) in ids.iter_mut().enumerate() {
                let name = format!("<0x{byte:02X}>");
                *id = pieces.get(name.as_bytes()).ok_or_else(|| format!("byte fallback without a piece {name}"))?;
            }
            Some(ids)
        } else {
            None
        };
        // Without bytes, unknown characters side by side are one token, also across a border.
        let cut = algorithm == Algorithm::Bpe && bytes.is_some();
        Ok(Self {
            unknown_score: normal().fold(f32::MAX, f32::min) - UNKNOWN_PENALTY,
            max_score: normal().fold(f32::MIN_POSITIVE, f32::max),
            borders: cut.then(|| Borders::new(&pieces)),
            any_unused: kinds.contains(&Kind::Unused),
            trie,
            symbols,
            algorithm,
            unknown,
            bytes,
            renumbered: None,
            extra: HashMap::new(),
            extra_by_id: HashMap::new(),
            pieces,
            scores,
            kinds,
        })
    }

    /// Leaves symbols to whoever has cut them out of every text before.
    pub(crate) fn without_symbols(self) -> Self {
        Self { symbols: Arc::default(), ..self }
    }

    /// Gives pieces other ids than their numbers.
    pub(crate) fn renumber(&mut self, id_of: impl Fn(&str, Kind, u32) -> u32) {
        let id = |(&kind, i): (&Kind, u32)| id_of(self.pieces.text(i).unwrap_or_default(), kind, i);
        let ids: Vec<u32> = self.kinds.iter().zip(0..).map(id).collect();
        let back = ids.iter().enumerate().map(|(i, &id)| (id, i as u32)).collect();
        self.renumbered = Some((ids, back));
    }

    /// Adds an entry that no text is segmented into.
    pub(crate) fn add_extra(&mut self, text: &str, id: u32) {
        if self.id(text).is_none() {
            self.extra.insert(text.to_owned(), id);
            self.extra_by_id.insert(id, text.to_owned());
        }
    }

    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn symbols(&self) -> Arc<Trie> {
        self.symbols.clone()
    }

    fn id_of(&self, piece: u32) -> u32 {
        match &self.renumbered {
            Some((ids, _)) => ids[piece as usize],
            None => piece,
        }
    }

    /// The number of the piece that has an id.
    fn number(&self, id: u32) -> Option<u32> {
        match &self.renumbered {
            Some((_, back)) => back.get(&id).copied(),
            None => Some(id),
        }
    }

    /// Adds the tokens of a normalised text. Neighbouring unknown characters are one token, or each is spelled in bytes.
    fn word(&self, word: Text<'_>, scratch: &mut Scratch, out: &mut Tokens) {
        let mut after_unknown = false;
        let mut start = 0;
        let mut emit = |end: usize, piece: u32| {
            let unknown = piece == self.unknown;
            match &self.bytes {
                Some(ids) if unknown => {
                    for byte in word.text[start..end].bytes() {
                        out.push(self.id_of(ids[usize::from(byte)]), word, start, end);
                    }
                }
                _ if unknown && after_unknown => {
                    if let (Some(last), true) = (out.spans.last_mut(), word.traced()) {
                        last.1 = word.spans[end - 1].1;
                    }
                }
                _ => out.push(self.id_of(piece), word, start, end),
            }
            after_unknown = unknown;
            start = end;
        };
        match self.algorithm {
            Algorithm::Unigram => self.viterbi(word.text, &mut emit),
            Algorithm::Bpe => self.merge(word.text, scratch, &mut emit),
        }
    }

    /// The best path: end and piece of each part.
    fn viterbi(&self, text: &str, emit: &mut impl FnMut(usize, u32)) {
        #[derive(Clone, Copy)]
        struct Best {
            piece: u32,
            score: f32,
            start: usize,
        }
        const OPEN: usize = usize::MAX;
        let bytes = text.as_bytes();
        let mut best = vec![Best { piece: self.unknown, score: 0.0, start: OPEN }; bytes.len() + 1];
        for (start, c) in text.char_indices() {
            let before = best[start].score;
            let mut single = false;
            // Sums are rounded to float32 as in the library; ties depend on it.
            let mut offer = |end: usize, piece: u32, score: f32| {
                let target = &mut best[end];
                if target.start == OPEN || score > target.score {
                    *target = Best { piece, score, start };
                }
            };
            for (length, piece) in self.trie.prefixes(&bytes[start..]) {
                let score = if self.kinds[piece as usize] == Kind::UserDefined {
                    (f64::from(length as f32 * self.max_score) - 0.1) as f32
                } else {
                    self.scores[piece as usize]
                };
                offer(start + length, piece, score + before);
                single |= length == c.len_utf8();
            }
            if !single {
                offer(start + c.len_utf8(), self.unknown, self.unknown_score + before);
            }
        }
        let mut path = Vec::new();
        let mut end = bytes.len();
        while end > 0 {
            path.push((end, best[end].piece));
            end = best[end].start;
        }
        path.into_iter().rev().for_each(|(end, piece)| emit(end, piece));
    }

    /// The piece that a text is, if text can be segmented into it.
    fn lookup(&self, text: &str) -> Option<u32> {
        let piece = self.pieces.get(text.as_bytes())?;
        matches!(self.kinds[piece as usize], Kind::Normal | Kind::UserDefined | Kind::Unused).then_some(piece)
    }

    /// How early a piece is merged: the best score first.
    fn rank(&self, piece: u32) -> u32 {
        let bits = (self.scores[piece as usize] + 0.0).to_bits(); // no negative zero: it would lose against zero
        if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits }
    }

    /// Merges neighbours, best score first, leftmost among equals.
    fn merge(&self, text: &str, scratch: &mut Scratch, emit: &mut impl FnMut(usize, u32)) {
        /// A character, and a symbol that is not merged.
        const CHAR: u32 = u32::MAX;
        const SYMBOL: u32 = u32::MAX - 1;
        let parts = &mut scratch.parts;
        parts.clear();
        if self.symbols.is_empty() {
            text.chars().for_each(|c| parts.push(CHAR, c.len_utf8()));
        } else {
            let mut at = 0;
            while at < text.len() {
                let (id, length) = match self.symbols.longest(&text.as_bytes()[at..]) {
                    Some((length, _)) => (SYMBOL, length),
                    None => (CHAR, text[at..].chars().next().map_or(1, char::len_utf8)),
                };
                parts.push(id, length);
                at += length;
            }
        }
        // Unused pieces take part in merging and are taken apart again at the end.
        let mut halves: HashMap<&str, usize> = HashMap::new();
        parts.merge(|a: Part, b: Part| {
            if a.id == SYMBOL || b.id == SYMBOL {
                return None;
            }
            let merged = &text[a.start..b.end];
            let piece = self.lookup(merged)?;
            if self.any_unused && self.kinds[piece as usize] == Kind::Unused {
                halves.insert(merged, a.end - a.start);
            }
            Some((self.rank(piece), piece))
        });
        let mut start = 0;
        for (&id, &end) in parts.ids.iter().zip(&parts.ends) {
            let end = end as usize;
            match id {
                CHAR | SYMBOL => self.resolve(text, start, end, &halves, emit),
                _ if self.any_unused => self.resolve(text, start, end, &halves, emit),
                piece => emit(end, piece),
            }
            start = end;
        }
    }

    /// The piece of a part, or those of its halves where it is an unused one.
    fn resolve(
        &self,
        text: &str,
        start: usize,
        end: usize,
        halves: &HashMap<&str, usize>,
        emit: &mut impl FnMut(usize, u32),
    ) {
        let mut work = vec![(start, end)];
        while let Some((start, end)) = work.pop() {
            let part = &text[start..end];
            let piece = self.lookup(part);
            let unused = piece.is_some_and(|piece| self.kinds[piece as usize] == Kind::Unused);
            match halves.get(part) {
                Some(&half) if unused => work.extend([(start + half, end), (start, start + half)]),
                _ => emit(end, piece.unwrap_or(self.unknown)),
            }
        }
    }
}

impl Model for Segmenter {
    fn segment(&self, word: Text<'_>, scratch: &mut Scratch, out: &mut Tokens) -> Result<(), String> {
        let mut run = |word: Text<'_>| {
            remembered(word, scratch, out, |scratch, out| {
                self.word(word, scratch, out);
                Ok(())
            })
        };
        let Some(borders) = &self.borders else { return run(word) };
        let mut at = 0;
        while at < word.text.len() {
            let end = borders.next(word.text.as_bytes(), at);
            run(word.slice(at, end))?;
            at = end;
        }
        Ok(())
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.pieces.get(token.as_bytes()).map(|i| self.id_of(i)).or_else(|| self.extra.get(token).copied())
    }

    fn token(&self, id: u32) -> Option<String> {
        let piece = || Some(self.pieces.text(self.number(id)?)?.to_owned());
        self.extra_by_id.get(&id).cloned().or_else(piece)
    }

    fn size(&self) -> usize {
        self.len() + self.extra.len()
    }

    /// Whether an id has no text of its own (`<s>`).
    fn is_control(&self, id: u32) -> bool {
        self.number(id).and_then(|i| self.kinds.get(i as usize)) == Some(&Kind::Control)
    }
}
