//! From ids back to text, one id at a time.
//!
//! The decoders of the `tokenizers` crate map a whole list of tokens to a text. Here each of them is a step that takes
//! tokens as they come and gives text as soon as no later token can change it; decoding at once is the same steps run to
//! the end, so a stream cannot differ from it. A step that cannot work that way keeps everything until the end.

use serde_json::Value;
use tokenizers::DecoderWrapper;

use crate::byte_level::bytes_of;
use crate::fallback::guard;
use crate::sentencepiece::Surface;
use crate::tokenizer::Tokenizer;

/// The steps of a tokenizer's decoder.
pub(crate) struct Detokenizer(Vec<Step>);

enum Step {
    /// Tokens with spaces between: what a tokenizer without decoder does.
    Join,
    /// Puts a text in place of another.
    Replace(String, String),
    /// A space for each mark; those of the first token go, if the flag says so.
    Metaspace(char, bool),
    /// Spaces before words, and none before pieces that begin with the mark, which goes; tidied if the flag says so.
    WordPiece(String, bool),
    /// A space for each mark at the end of a word, but none for the last token's.
    Suffix(String),
    /// Cuts `content` off the start and the end of each token.
    Strip(Strip),
    /// Runs of `<0x..>` tokens become UTF-8, or as many U+FFFD as there are tokens.
    ByteFallback,
    /// All tokens become one.
    Fuse,
    /// [`Step::Strip`] on the one token that a fusing step made, which comes in parts.
    StripFused(Strip),
    /// Byte-level tokens become UTF-8; fuses.
    ByteLevel,
    /// SentencePiece's own way; fuses.
    SentencePiece(Surface),
    /// Any other decoder waits for the end.
    Whole(Box<DecoderWrapper>, Fused),
}

/// Up to so many of a character at the start and at the end.
struct Strip {
    content: char,
    start: usize,
    stop: usize,
}

type Fused = bool;

/// What a step remembers between tokens.
#[derive(Default, Clone)]
pub(crate) struct Memory {
    pub(crate) seen: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) held: usize,
    cut: usize,
    tokens: Vec<String>,
}

impl Detokenizer {
    /// The decoder that `tokenizer.json` describes.
    ///
    /// # Errors
    /// One that is not known.
    pub(crate) fn read(value: &Value) -> Result<Self, String> {
        let mut steps = Vec::new();
        match value {
            Value::Null => steps.push(Step::Join),
            _ => flatten(value, &mut steps, &mut false)?,
        }
        Ok(Self(steps))
    }

    /// WordPiece as BERT has it.
    pub(crate) fn wordpiece() -> Self {
        Self(vec![Step::WordPiece("##".into(), true)])
    }

    pub(crate) fn byte_level() -> Self {
        Self(vec![Step::ByteLevel])
    }

    pub(crate) fn sentencepiece(surface: Surface) -> Self {
        Self(vec![Step::SentencePiece(surface)])
    }

    /// The bytes of a token that is neither first nor last.
    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        let mut token = token.to_owned();
        for step in &self.0 {
            match step {
                Step::ByteLevel => return bytes_of(&token),
                Step::SentencePiece(surface) => return surface.bytes(&token),
                Step::ByteFallback => {
                    if let Some(byte) = fallback_byte(&token) {
                        return vec![byte];
                    }
                }
                Step::Join | Step::Replace(..) | Step::Metaspace(..) | Step::WordPiece(..) | Step::Suffix(_) => {
                    let mut memory = Memory { seen: true, ..Memory::default() };
                    let mut out = Vec::new();
                    step.push(&mut memory, token, &mut out);
                    step.push(&mut memory, String::new(), &mut out);
                    token = out.into_iter().next().unwrap_or_default();
                }
                Step::Strip(_) | Step::Fuse | Step::StripFused(_) | Step::Whole(..) => {}
            }
        }
        token.into_bytes()
    }

    fn push(&self, memory: &mut [Memory], from: usize, token: String, text: &mut String) {
        let Some(step) = self.0.get(from) else {
            return text.push_str(&token);
        };
        let mut out = Vec::new();
        step.push(&mut memory[from], token, &mut out);
        for token in out {
            self.push(memory, from + 1, token, text);
        }
    }

    fn finish(&self, memory: &mut [Memory], text: &mut String) {
        for (i, step) in self.0.iter().enumerate() {
            for token in step.finish(std::mem::take(&mut memory[i])) {
                self.push(memory, i + 1, token, text);
            }
        }
    }
}

fn flatten(value: &Value, steps: &mut Vec<Step>, fused: &mut bool) -> Result<(), String> {
    if let (Some("Sequence"), Some(decoders)) = (value["type"].as_str(), value["decoders"].as_array()) {
        return decoders.iter().try_for_each(|decoder| flatten(decoder, steps, fused));
    }
    let step = match own(value) {
        Some(Step::Strip(strip)) if *fused => Step::StripFused(strip),
        Some(step @ (Step::Fuse | Step::ByteLevel)) if !*fused || matches!(step, Step::Fuse) => {
            *fused = true;
            step
        }
        Some(step) if !*fused => step,
        _ => Step::Whole(guard(|| Ok(serde_json::from_value(value.clone())?))?, *fused),
    };
    steps.push(step);
    Ok(())
}

/// A decoder that is built here.
fn own(value: &Value) -> Option<Step> {
    let text = |key: &str| value.get(key)?.as_str();
    let flag = |key: &str| value.get(key)?.as_bool();
    let character = |key: &str| {
        let mut chars = text(key)?.chars();
        Some(chars.next()?).filter(|_| chars.next().is_none())
    };
    let count = |key: &str| usize::try_from(value.get(key)?.as_u64()?).ok();
    Some(match text("type")? {
        "Replace" => {
            let pattern = value.get("pattern")?.get("String")?.as_str().filter(|p| !p.is_empty())?;
            Step::Replace(pattern.to_owned(), text("content")?.to_owned())
        }
        "Metaspace" => {
            let never = text("prepend_scheme") == Some("never");
            let prefix = flag("add_prefix_space").unwrap_or(true);
            if !prefix && !never {
                return None;
            }
            Step::Metaspace(character("replacement")?, !never)
        }
        "WordPiece" => Step::WordPiece(text("prefix")?.to_owned(), flag("cleanup")?),
        "BPEDecoder" => Step::Suffix(text("suffix").filter(|s| !s.is_empty())?.to_owned()),
        "Strip" => Step::Strip(Strip { content: character("content")?, start: count("start")?, stop: count("stop")? }),
        "ByteFallback" => Step::ByteFallback,
        "Fuse" => Step::Fuse,
        "ByteLevel" => Step::ByteLevel,
        _ => return None,
    })
}

/// What `cleanup` of the WordPiece decoder does to a token.
fn tidy(token: &str) -> String {
    let rules = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    rules.iter().fold(token.to_owned(), |token, (from, to)| token.replace(from, to))
}

impl Step {
    fn push(&self, memory: &mut Memory, token: String, out: &mut Vec<String>) {
        match self {
            Self::Join => {
                let token = if memory.seen { format!(" {token}") } else { token };
                memory.seen = true;
                out.push(token);
            }
            Self::Replace(from, to) => out.push(token.replace(from, to)),
            Self::Metaspace(mark, drop) => {
                let space = if *drop && !memory.seen { "" } else { " " };
                memory.seen = true;
                out.push(token.replace(*mark, space));
            }
            Self::WordPiece(mark, cleanup) => {
                let token = match token.strip_prefix(mark.as_str()) {
                    _ if !memory.seen => token,
                    Some(rest) => rest.to_owned(),
                    None => format!(" {token}"),
                };
                memory.seen = true;
                out.push(if *cleanup { tidy(&token) } else { token });
            }
            Self::Suffix(mark) => {
                if let Some(previous) = memory.tokens.pop() {
                    out.push(previous.replace(mark, " "));
                }
                memory.tokens.push(token);
            }
            Self::Strip(strip) => {
                let end = token.trim_end_matches(strip.content);
                let trailing = (token.len() - end.len()) / strip.content.len_utf8();
                let kept = token.len() - trailing.min(strip.stop) * strip.content.len_utf8();
                let start = token.trim_start_matches(strip.content);
                let leading = (token.len() - start.len()) / strip.content.len_utf8();
                let from = leading.min(strip.start) * strip.content.len_utf8();
                out.push(token.get(from..kept).unwrap_or_default().to_owned());
            }
            Self::ByteFallback => match fallback_byte(&token) {
                Some(byte) => memory.bytes.push(byte),
                None => {
                    fallback_run(&mut memory.bytes, out);
                    out.push(token);
                }
            },
            Self::Fuse => out.push(token),
            Self::StripFused(strip) => {
                let mut text = String::with_capacity(token.len());
                for c in token.chars() {
                    if !memory.seen && c == strip.content && memory.cut < strip.start {
                        memory.cut += 1;
                        continue;
                    }
                    memory.seen = true;
                    if c == strip.content && memory.held < strip.stop {
                        memory.held += 1;
                        continue;
                    }
                    // Held characters that turn out not to be the last ones are equal to each other.
                    if c != strip.content {
                        text.extend(std::iter::repeat_n(strip.content, std::mem::take(&mut memory.held)));
                    }
                    text.push(c);
                }
                out.push(text);
            }
            Self::ByteLevel => {
                memory.bytes.extend(bytes_of(&token));
                out.push(take_text(&mut memory.bytes));
            }
            Self::SentencePiece(surface) => out.push(surface.push(memory, &token)),
            Self::Whole(..) => memory.tokens.push(token),
        }
    }

    fn finish(&self, mut memory: Memory) -> Vec<String> {
        let mut out = Vec::new();
        match self {
            Self::ByteFallback => fallback_run(&mut memory.bytes, &mut out),
            Self::SentencePiece(surface) => out.push(surface.finish(&mut memory)),
            // An incomplete character at the end is one U+FFFD, as in `String::from_utf8_lossy`.
            Self::ByteLevel if !memory.bytes.is_empty() => out.push("\u{FFFD}".into()),
            Self::Suffix(mark) => out.extend(memory.tokens.pop().map(|last| last.replace(mark, ""))),
            Self::Whole(decoder, true) => out = decode(decoder, vec![memory.tokens.concat()]),
            Self::Whole(decoder, false) => out = decode(decoder, memory.tokens),
            _ => {}
        }
        out
    }
}

/// What the decoder of `tokenizers` makes of tokens; tokens that it fails on stay as they are.
fn decode(decoder: &DecoderWrapper, tokens: Vec<String>) -> Vec<String> {
    let kept = tokens.clone();
    guard(|| tokenizers::Decoder::decode_chain(decoder, tokens)).unwrap_or(kept)
}

pub(crate) fn fallback_byte(token: &str) -> Option<u8> {
    if token.len() != 6 {
        return None;
    }
    u8::from_str_radix(token.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

fn fallback_run(bytes: &mut Vec<u8>, out: &mut Vec<String>) {
    let count = bytes.len();
    match String::from_utf8(std::mem::take(bytes)) {
        Ok(text) if count > 0 => out.push(text),
        Ok(_) => {}
        Err(_) => out.extend(std::iter::repeat_n("\u{FFFD}".to_owned(), count)),
    }
}

/// Takes the text off the front of `bytes`, invalid bytes as U+FFFD, and leaves a character that may still become whole.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = bytes.as_slice();
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                rest = &[];
                break;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                let Some(length) = error.error_len() else {
                    rest = after;
                    break;
                };
                text.push('\u{FFFD}');
                rest = &after[length..];
            }
        }
    }
    *bytes = rest.to_vec();
    text
}

/// Decodes ids one after another. What the pushes and the final flush give, put together, is exactly what
/// [`Tokenizer::decode`] gives for all ids at once; no piece ends within a character.
pub struct Stream {
    tokenizer: Tokenizer,
    skip_special: bool,
    memory: Vec<Memory>,
}

impl Stream {
    pub(crate) fn new(tokenizer: Tokenizer, skip_special: bool) -> Self {
        let memory = vec![Memory::default(); tokenizer.detokenizer().0.len()];
        Self { tokenizer, skip_special, memory }
    }

    /// The text that is certain after this id and was not given before; none if there is none yet.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let engine = self.tokenizer.engine();
        if self.skip_special && engine.is_special(id) {
            return None;
        }
        let token = engine.token(id)?;
        let mut text = String::new();
        self.tokenizer.detokenizer().push(&mut self.memory, 0, token, &mut text);
        (!text.is_empty()).then_some(text)
    }

    /// The text that was held back. The stream then starts anew.
    pub fn flush(&mut self) -> Option<String> {
        let mut text = String::new();
        self.tokenizer.detokenizer().finish(&mut self.memory, &mut text);
        (!text.is_empty()).then_some(text)
    }
}
