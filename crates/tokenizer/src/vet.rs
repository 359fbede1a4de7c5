//! Is a `tokenizer.json` one that may run? What the `tokenizers` crate would take literally and choke on is refused
//! before it is built: steps that multiply the text (a chain of a hundred replacements, each doubling, fills any memory),
//! steps that do not advance, and chance.

use serde_json::Value;

/// The most that all steps together may lengthen a text. Real files stay below 64: a mark of three bytes for a space,
/// at most thrice.
const MAX_GROWTH: usize = 4096;

/// Checks the `normalizer`, `pre_tokenizer`, `post_processor` or `decoder` of a file.
pub(crate) fn part(name: &str, value: &Value) -> Result<(), String> {
    match growth(value)? {
        n if n > MAX_GROWTH => {
            Err(format!("{name} may lengthen a text more than {MAX_GROWTH} times; real tokenizers stay far below"))
        }
        _ => Ok(()),
    }
}

/// By what factor a step may lengthen its input. Steps are told apart by their fields, since old files leave out `type`.
fn growth(step: &Value) -> Result<usize, String> {
    if let Value::Array(steps) = step {
        return steps.iter().try_fold(1usize, |all, step| Ok(all.saturating_mul(growth(step)?)));
    }
    let Value::Object(step) = step else { return Ok(1) };
    let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("type") == "FixedLength" && step.get("length").and_then(Value::as_u64).is_none_or(|n| n == 0) {
        return Err("pre_tokenizer FixedLength needs a length of at least 1".into());
    }
    let own = match step.get("pattern") {
        Some(pattern) if step.contains_key("content") => {
            let shortest = pattern.get("String").and_then(Value::as_str).map_or(1, str::len);
            text("content").len().div_ceil(shortest.max(1))
        }
        _ if step.contains_key("prepend") => 1 + text("prepend").len(),
        _ if step.contains_key("replacement") => text("replacement").len() + 1,
        _ if text("type") == "ByteLevel" || step.contains_key("trim_offsets") => 2,
        _ => 1,
    };
    let sequences = |key: &str| match step.get(key) {
        Some(Value::Array(items)) => items.iter().filter(|i| i.get("Sequence").is_some()).count(),
        _ => 0,
    };
    let own = own.max(sequences("single")).max(sequences("pair").div_ceil(2)).max(1);
    ["normalizers", "pretokenizers", "processors", "decoders"]
        .iter()
        .filter_map(|key| step.get(*key))
        .try_fold(own, |all, steps| Ok(all.saturating_mul(growth(steps)?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn real_chains_pass_and_bombs_do_not() {
        let replace = |content: &str| json!({"type": "Replace", "pattern": {"String": " "}, "content": content});
        let llama = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace("▁")]});
        assert_eq!(part("normalizer", &llama), Ok(()));
        let bomb = json!({"type": "Sequence", "normalizers": vec![replace("  "); 13]});
        assert!(part("normalizer", &bomb).is_err());
        let levels = vec![json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}); 13];
        assert!(part("pre_tokenizer", &json!({"type": "Sequence", "pretokenizers": levels})).is_err());
        assert!(part("pre_tokenizer", &json!({"type": "FixedLength", "length": 0})).is_err());
    }
}
