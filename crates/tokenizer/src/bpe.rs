//! Byte-pair encoding by a list of merges, as the `tokenizers` crate does it: over the bytes of a word (GPT-2 and its
//! kin) or over its characters (Llama 2, Gemma).

use crate::borders::Borders;
use crate::byte_level::char_of;
use crate::merge::{Part, Parts};
use crate::model::{Model, Scratch, Tokens, remembered};
use crate::text::Text;
use crate::vocab::{Vocab, random};

/// A vocabulary with its merges.
pub(crate) struct Bpe {
    vocab: Vocab,
    merges: Merges,
    /// Whole words that are tokens are not merged from parts.
    ignore_merges: bool,
    unknown: Option<u32>,
    /// Unknown characters side by side are one token.
    fuse_unknown: bool,
    letters: Letters,
}

/// What merging begins with.
enum Letters {
    /// The bytes of a word, each with its token.
    Bytes(Box<[u32; 256]>),
    /// Its characters; those that are no token are spelled by the tokens of their bytes, where these exist.
    Chars {
        /// Tokens of ASCII characters, which need no look-up.
        ascii: Box<[u32; 128]>,
        bytes: Option<Box<[u32; 256]>>,
        borders: Option<Borders>,
    },
}

const NONE: u32 = u32::MAX;

/// What the file says beside vocabulary and merges.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) byte_level: bool,
    pub(crate) ignore_merges: bool,
    pub(crate) byte_fallback: bool,
    pub(crate) fuse_unknown: bool,
    pub(crate) unknown: Option<String>,
}

impl Bpe {
    /// # Errors
    /// A merge, or an unknown token, that is not in the vocabulary.
    pub(crate) fn new(vocab: Vocab, mut merges: MergeList, options: &Options) -> Result<Self, String> {
        merges.look_up(&vocab)?;
        let lacks = |token: &String| format!("the vocabulary has no token {token}");
        let unknown = options.unknown.as_ref().map(|t| vocab.get(t.as_bytes()).ok_or_else(|| lacks(t))).transpose()?;
        let ids = |name: &dyn Fn(u8) -> String| {
            let mut ids = Box::new([NONE; 256]);
            (0..=255u8).for_each(|b| ids[usize::from(b)] = vocab.get(name(b).as_bytes()).unwrap_or(NONE));
            ids
        };
        let letters = if options.byte_level {
            Letters::Bytes(ids(&|b| char_of(b).to_string()))
        } else {
            let bytes = options.byte_fallback.then(|| ids(&|b| format!("<0x{b:02X}>")));
            // Across a border unknown characters would not be fused; and tokens of bytes must not merge further.
            let spelled = bytes.as_ref().is_some_and(|ids| !ids.contains(&NONE));
            let apart = spelled || unknown.is_none() || !options.fuse_unknown;
            let mut stand_in = vec![false; vocab.len()];
            for &id in bytes.iter().flat_map(|b| b.iter()).chain(&unknown).filter(|&&id| id != NONE) {
                stand_in[id as usize] = true;
            }
            let mut ascii = Box::new([NONE; 128]);
            (0..128u8).for_each(|c| ascii[usize::from(c)] = vocab.get(&[c]).unwrap_or(NONE));
            Letters::Chars {
                ascii,
                bytes,
                borders: (apart && !merges.involve(&stand_in)).then(|| Borders::new(&vocab)),
            }
        };
        let (ignore_merges, fuse_unknown) = (options.ignore_merges, options.fuse_unknown);
        Ok(Self { vocab, merges: merges.build(), ignore_merges, unknown, fuse_unknown, letters })
    }

    /// Whether merging can begin with every byte, where it begins with bytes.
    pub(crate) fn has_all_bytes(&self) -> bool {
        !matches!(&self.letters, Letters::Bytes(ids) if ids.contains(&NONE))
    }

    fn word(&self, word: Text<'_>, scratch: &mut Scratch, out: &mut Tokens) -> Result<(), String> {
        remembered(word, scratch, out, |scratch, out| {
            if self.ignore_merges
                && let Some(id) = self.whole(word.text, &mut scratch.text)
            {
                out.push(id, word, 0, word.text.len());
                return Ok(());
            }
            let parts = &mut scratch.parts;
            parts.clear();
            let mut unknown = 0;
            let flush = |parts: &mut Parts, length: usize, unknown: &mut usize| {
                if let (Some(id), true) = (self.unknown, *unknown > 0) {
                    parts.push(id, *unknown);
                }
                *unknown = length;
            };
            match &self.letters {
                Letters::Bytes(ids) => {
                    for byte in word.text.bytes() {
                        match ids[usize::from(byte)] {
                            NONE if self.fuse_unknown => unknown += 1,
                            NONE => flush(parts, 1, &mut unknown),
                            id => {
                                flush(parts, 0, &mut unknown);
                                parts.push(id, 1);
                            }
                        }
                    }
                }
                Letters::Chars { ascii, bytes, .. } => {
                    let mut buffer = [0; 4];
                    for c in word.text.chars() {
                        let known = ascii.get(c as usize).filter(|&&id| id != NONE).copied();
                        let c = c.encode_utf8(&mut buffer).as_bytes();
                        if let Some(id) = known.or_else(|| self.vocab.get(c)) {
                            flush(parts, 0, &mut unknown);
                            parts.push(id, c.len());
                            continue;
                        }
                        match bytes {
                            Some(ids) if c.iter().all(|&b| ids[usize::from(b)] != NONE) => {
                                c.iter().for_each(|&b| parts.push(ids[usize::from(b)], 1));
                            }
                            _ if self.fuse_unknown => unknown += c.len(),
                            _ => flush(parts, c.len(), &mut unknown),
                        }
                    }
                }
            }
            flush(parts, 0, &mut unknown);
            parts.merge(|a: Part, b: Part| self.merges.get(a.id, b.id));
            let mut start = 0;
            for (&id, &end) in parts.ids.iter().zip(&parts.ends) {
                out.push(id, word, start, end as usize);
                start = end as usize;
            }
            Ok(())
        })
    }

    /// The token that is the whole word.
    fn whole(&self, word: &str, buffer: &mut String) -> Option<u32> {
        match self.letters {
            Letters::Chars { .. } => self.vocab.get(word.as_bytes()),
            Letters::Bytes(_) => {
                buffer.clear();
                buffer.extend(word.bytes().map(char_of));
                self.vocab.get(buffer.as_bytes())
            }
        }
    }
}

impl Model for Bpe {
    fn segment(&self, word: Text<'_>, scratch: &mut Scratch, out: &mut Tokens) -> Result<(), String> {
        let Letters::Chars { borders: Some(borders), .. } = &self.letters else {
            return self.word(word, scratch, out);
        };
        if self.ignore_merges
            && let Some(id) = self.whole(word.text, &mut scratch.text)
        {
            out.push(id, word, 0, word.text.len());
            return Ok(());
        }
        let mut at = 0;
        while at < word.text.len() {
            let end = borders.next(word.text.as_bytes(), at);
            self.word(word.slice(at, end), scratch, out)?;
            at = end;
        }
        Ok(())
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.vocab.get(token.as_bytes())
    }

    fn token(&self, id: u32) -> Option<String> {
        self.vocab.text(id).map(str::to_owned)
    }

    fn size(&self) -> usize {
        self.vocab.len()
    }
}

/// What two neighbours become, and how early: pairs of ids in an open-addressing table.
pub(crate) struct Merges {
    places: Vec<Merge>,
    shift: u32,
    multiplier: u64,
}

#[derive(Debug, Clone, Copy)]
struct Merge {
    left: u32,
    right: u32,
    rank: u32,
    id: u32,
}

/// Merges as they are read from a file.
#[derive(Default)]
pub(crate) struct MergeList {
    /// Left, right, and what they become; by rank.
    merges: Vec<[u32; 3]>,
    /// Tokens that wait to be looked up, left and right by turns, and where they end.
    text: Vec<u8>,
    ends: Vec<u32>,
    ids: Vec<Option<u32>>,
}

/// So many tokens are looked up together.
const TOGETHER: usize = 512;

impl MergeList {
    /// Adds the merge of the next rank.
    ///
    /// # Errors
    /// One of the tokens of an earlier merge, or the two together, are not in the vocabulary.
    pub(crate) fn push(&mut self, vocab: &Vocab, left: &[u8], right: &[u8]) -> Result<(), String> {
        self.token(left);
        self.token(right);
        self.look_up_many(vocab)
    }

    /// Adds a token: the left one of the next merge, or the right one.
    pub(crate) fn token(&mut self, token: &[u8]) {
        self.text.extend_from_slice(token);
        self.ends.push(self.text.len() as u32);
    }

    /// Looks up what was added, if there is much of it; all merges are complete.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn look_up_many(&mut self, vocab: &Vocab) -> Result<(), String> {
        match self.ends.len() >= TOGETHER {
            true => self.look_up(vocab),
            false => Ok(()),
        }
    }

    fn look_up(&mut self, vocab: &Vocab) -> Result<(), String> {
        vocab.get_all(&self.text, &self.ends, &mut self.ids);
        let mut start = 0;
        for (ids, ends) in self.ids.chunks_exact(2).zip(self.ends.chunks_exact(2)) {
            let (middle, end) = (ends[0] as usize, ends[1] as usize);
            let both = &self.text[start..end];
            // Merges come in the order of what they make: the same token again, or the next one.
            let last = self.merges.last().map_or(0, |merge| merge[2]);
            let guess = [last, last.wrapping_add(1)].into_iter().find(|&id| vocab.bytes(id) == both);
            let guess = guess.filter(|_| vocab.is_one_to_one());
            let [left, right, merged] = [ids[0], ids[1], guess.or_else(|| vocab.get(both))];
            let (Some(left), Some(right), Some(merged)) = (left, right, merged) else {
                let missing = if left.is_none() {
                    &self.text[start..middle]
                } else if right.is_none() {
                    &self.text[middle..end]
                } else {
                    both
                };
                let missing = String::from_utf8_lossy(missing);
                return Err(format!("merge {}: {missing:?} is not in the vocabulary", self.merges.len()));
            };
            self.merges.push([left, right, merged]);
            start = end;
        }
        self.text.clear();
        self.ends.clear();
        Ok(())
    }

    /// Whether a merge takes one of the marked ids.
    fn involve(&self, marked: &[bool]) -> bool {
        self.merges.iter().any(|&[left, right, _]| marked[left as usize] || marked[right as usize])
    }

    fn build(self) -> Merges {
        debug_assert!(self.ends.is_empty());
        let log2 = (self.merges.len() * 2).next_power_of_two().max(2).ilog2();
        let empty = Merge { left: NONE, right: NONE, rank: NONE, id: NONE };
        let mut table = Merges { places: vec![empty; 1 << log2], shift: 64 - log2, multiplier: random() | 1 };
        for (rank, &[left, right, id]) in (0..).zip(&self.merges) {
            let at = table.place(left, right);
            // The last of equal merges counts.
            table.places[at] = Merge { left, right, rank, id };
        }
        table
    }
}

impl Merges {
    /// Where a pair is, or would be.
    #[inline]
    fn place(&self, left: u32, right: u32) -> usize {
        let mask = self.places.len() - 1;
        let key = u64::from(left) << 32 | u64::from(right);
        let mut at = ((key ^ key >> 29).wrapping_mul(self.multiplier) >> self.shift) as usize & mask;
        loop {
            let found = &self.places[at];
            if found.left == left && found.right == right || found.rank == NONE {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Rank and result of a merge.
    #[inline]
    fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let found = &self.places[self.place(left, right)];
        (found.rank != NONE).then_some((found.rank, found.id))
    }
}
