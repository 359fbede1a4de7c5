//! From normalised text to pieces: unigram by Viterbi, BPE by best score first, as in `unigram_model.cc`
//! (`EncodeOptimized`) and `bpe_model.cc` of the library.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use tokenizers::Token;

use super::{Kind, Piece, Trie};

/// How pieces are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Unigram,
    Bpe,
}

/// A vocabulary of scored pieces.
pub(crate) struct Segmenter {
    pieces: Vec<Piece>,
    index: HashMap<String, u32>,
    /// Normal, user-defined and unused pieces, for unigram.
    trie: Trie,
    symbols: Arc<Trie>,
    algorithm: Algorithm,
    unknown: u32,
    /// Piece for each byte, if unknown characters are spelled in bytes.
    bytes: Option<Box<[u32; 256]>>,
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
    /// Pieces are distinct, not empty, finite, and one of them stands for the unknown (checked by [`super::Proto`]).
    pub(crate) fn new(pieces: Vec<Piece>, algorithm: Algorithm, byte_fallback: bool) -> Result<Self, String> {
        let index: HashMap<String, u32> = pieces.iter().enumerate().map(|(i, p)| (p.text.clone(), i as u32)).collect();
        let numbered = || pieces.iter().enumerate().map(|(i, p)| (p, i as u32));
        let symbols = numbered().filter(|(p, _)| p.kind == Kind::UserDefined).map(|(p, i)| (p.text.as_str(), i));
        let symbols = Arc::new(Trie::new(symbols));
        let trie = match algorithm {
            Algorithm::Bpe => Trie::default(),
            Algorithm::Unigram => Trie::new(
                numbered()
                    .filter(|(p, _)| matches!(p.kind, Kind::Normal | Kind::UserDefined))
                    .map(|(p, i)| (p.text.as_str(), i)),
            ),
        };
        let scores = || pieces.iter().filter(|p| p.kind == Kind::Normal).map(|p| p.score);
        let unknown = numbered().find(|(p, _)| p.kind == Kind::Unknown).ok_or("no piece stands for the unknown")?.1;
        let bytes = if byte_fallback {
            let mut ids = Box::new([0; 256]);
            for (byte, id) in ids.iter_mut().enumerate() {
                let name = format!("<0x{byte:02X}>");
                *id = *index.get(&name).ok_or_else(|| format!("byte fallback without a piece {name}"))?;
            }
            Some(ids)
        } else {
            None
        };
        Ok(Self {
            unknown_score: scores().fold(f32::MAX, f32::min) - UNKNOWN_PENALTY,
            max_score: scores().fold(f32::MIN_POSITIVE, f32::max),
            index,
            trie,
            symbols,
            algorithm,
            unknown,
            bytes,
            renumbered: None,
            extra: HashMap::new(),
            extra_by_id: HashMap::new(),
            pieces,
        })
    }

    /// Gives pieces other ids than their numbers.
    pub(crate) fn renumber(&mut self, id_of: impl Fn(&Piece, u32) -> u32) {
        let ids: Vec<u32> = self.pieces.iter().enumerate().map(|(i, p)| id_of(p, i as u32)).collect();
        let back = ids.iter().enumerate().map(|(i, &id)| (id, i as u32)).collect();
        self.renumbered = Some((ids, back));
    }

    /// Adds an entry that no text is segmented into.
    pub(crate) fn add_extra(&mut self, text: &str, id: u32) {
        if self.token_to_id(text).is_none() {
            self.extra.insert(text.to_owned(), id);
            self.extra_by_id.insert(id, text.to_owned());
        }
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Whether an id has no text of its own (`<s>`).
    pub(crate) fn is_control(&self, id: u32) -> bool {
        self.piece_of(id).is_some_and(|p| p.kind == Kind::Control)
    }

    pub(crate) fn symbols(&self) -> Arc<Trie> {
        self.symbols.clone()
    }

    pub(crate) fn size(&self) -> usize {
        self.pieces.len() + self.extra.len()
    }

    fn id_of(&self, piece: u32) -> u32 {
        match &self.renumbered {
            Some((ids, _)) => ids[piece as usize],
            None => piece,
        }
    }

    fn piece_of(&self, id: u32) -> Option<&Piece> {
        let number = match &self.renumbered {
            Some((_, back)) => *back.get(&id)?,
            None => id,
        };
        self.pieces.get(number as usize)
    }

    pub(crate) fn token_to_id(&self, token: &str) -> Option<u32> {
        self.index.get(token).map(|&i| self.id_of(i)).or_else(|| self.extra.get(token).copied())
    }

    pub(crate) fn id_to_token(&self, id: u32) -> Option<String> {
        self.extra_by_id.get(&id).cloned().or_else(|| Some(self.piece_of(id)?.text.clone()))
    }

    /// Tokens of a normalised text, with offsets in its bytes. Neighbouring unknown characters are one token, or each is
    /// spelled in bytes.
    pub(crate) fn tokenize(&self, text: &str) -> Vec<Token> {
        let pieces = match self.algorithm {
            Algorithm::Unigram => self.viterbi(text),
            Algorithm::Bpe => self.merge(text),
        };
        let mut tokens: Vec<Token> = Vec::with_capacity(pieces.len());
        let mut after_unknown = false;
        let mut start = 0;
        for (end, piece) in pieces {
            let surface = &text[start..end];
            let unknown = piece == self.unknown;
            match &self.bytes {
                Some(ids) if unknown => {
                    let spelled = surface.bytes().map(|b| ids[usize::from(b)]);
                    tokens.extend(spelled.map(|p| Token::new(self.id_of(p), String::new(), (start, end))));
                }
                _ if unknown && after_unknown => {
                    if let Some(last) = tokens.last_mut() {
                        last.offsets.1 = end;
                    }
                }
                _ => tokens.push(Token::new(self.id_of(piece), String::new(), (start, end))),
            }
            after_unknown = unknown;
            start = end;
        }
        tokens
    }

    /// The best path: end and piece of each part.
    fn viterbi(&self, text: &str) -> Vec<(usize, u32)> {
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
                let entry = &self.pieces[piece as usize];
                let score = if entry.kind == Kind::UserDefined {
                    (f64::from(length as f32 * self.max_score) - 0.1) as f32
                } else {
                    entry.score
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
        path.reverse();
        path
    }

    fn lookup(&self, text: &str) -> Option<u32> {
        let id = *self.index.get(text)?;
        matches!(self.pieces[id as usize].kind, Kind::Normal | Kind::UserDefined | Kind::Unused).then_some(id)
    }

    /// Merges neighbours, best score first, leftmost among equals.
    fn merge(&self, text: &str) -> Vec<(usize, u32)> {
        let mut parts: Vec<Part> = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let symbol = self.symbols.longest(&text.as_bytes()[at..]);
            let length = symbol.map_or_else(|| text[at..].chars().next().map_or(1, char::len_utf8), |s| s.0);
            parts.push(Part {
                start: at,
                end: at + length,
                previous: parts.len().wrapping_sub(1),
                next: parts.len() + 1,
                frozen: symbol.is_some(),
            });
            at += length;
        }
        let mut agenda = BinaryHeap::new();
        // Unused pieces take part in merging and are taken apart again at the end.
        let mut halves: HashMap<&str, usize> = HashMap::new();
        let offer = |parts: &[Part], left: usize, agenda: &mut BinaryHeap<Pair>, halves: &mut HashMap<_, usize>| {
            let (Some(a), Some(b)) = (parts.get(left), parts.get(left).and_then(|p| parts.get(p.next))) else {
                return;
            };
            if a.frozen || b.frozen {
                return;
            }
            let merged = &text[a.start..b.end];
            if let Some(id) = self.lookup(merged) {
                let piece = &self.pieces[id as usize];
                agenda.push(Pair {
                    score: piece.score + 0.0, // no negative zero: it would lose against zero
                    left,
                    length: merged.len(),
                });
                if piece.kind == Kind::Unused {
                    halves.insert(merged, a.end - a.start);
                }
            }
        };
        for left in 0..parts.len() {
            offer(&parts, left, &mut agenda, &mut halves);
        }
        while let Some(pair) = agenda.pop() {
            let left = parts[pair.left];
            let Some(&right) = parts.get(left.next) else { continue };
            // A part that has been merged into its left neighbour is empty.
            if left.start == left.end || right.end - left.start != pair.length {
                continue;
            }
            parts[left.next].start = right.end;
            parts[pair.left].end = right.end;
            parts[pair.left].next = right.next;
            if let Some(after) = parts.get_mut(right.next) {
                after.previous = pair.left;
            }
            if left.previous < parts.len() {
                offer(&parts, left.previous, &mut agenda, &mut halves);
            }
            offer(&parts, pair.left, &mut agenda, &mut halves);
        }
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(part) = parts.get(at) {
            self.resolve(text, part.start, part.end, &halves, &mut out);
            at = part.next;
        }
        out
    }

    /// The piece of a part, or those of its halves where it is an unused one.
    fn resolve(
        &self,
        text: &str,
        start: usize,
        end: usize,
        halves: &HashMap<&str, usize>,
        out: &mut Vec<(usize, u32)>,
    ) {
        let mut work = vec![(start, end)];
        while let Some((start, end)) = work.pop() {
            let part = &text[start..end];
            let id = self.lookup(part);
            let unused = id.is_some_and(|id| self.pieces[id as usize].kind == Kind::Unused);
            match halves.get(part) {
                Some(&half) if unused => work.extend([(start + half, end), (start, start + half)]),
                _ => out.push((end, id.unwrap_or(self.unknown))),
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
    previous: usize,
    next: usize,
    frozen: bool,
}

struct Pair {
    score: f32,
    left: usize,
    length: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}
