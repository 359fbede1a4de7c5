//! The tokenizer inside of a GGUF file.

use crate::error::CliError;
use std::path::Path;
use tokenizer::{GgufVocab, Tokenizer};
use weights::Checkpoint;
use weights::gguf::Vocab;

/// Opens the tokenizer of a `.gguf` file; its weights are not touched.
///
/// # Errors
/// What is wrong with the file, or not built.
pub(crate) fn open(path: &Path) -> Result<Tokenizer, CliError> {
    let file = Checkpoint::open(path)?;
    let not_gguf = || CliError::NotGguf { path: path.to_owned() };
    let v = Vocab::read(file.metadata().ok_or_else(not_gguf)?)?;
    Ok(Tokenizer::from_gguf(&GgufVocab {
        model: v.model,
        pre: v.pre,
        tokens: v.tokens,
        scores: v.scores,
        types: v.types,
        merges: v.merges,
        bos: v.bos,
        eos: v.eos,
        eot: v.eot,
        unk: v.unk,
        sep: v.sep,
        pad: v.pad,
        cls: v.cls,
        mask: v.mask,
        add_bos: v.add_bos,
        add_eos: v.add_eos,
        add_space_prefix: v.add_space_prefix,
        remove_extra_spaces: v.remove_extra_spaces,
        charsmap: v.charsmap,
        chat_template: v.chat_template,
    })?)
}
