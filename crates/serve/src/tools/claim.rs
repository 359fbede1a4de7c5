//! What holds for every text that is read for calls, whatever a model writes. Property tests and fuzzers ask for it.

use super::{Format, Tool, Toolbox, json, tagged};
use crate::answer::Part;
use serde_json::{Map, Value};

const FORMATS: [Format; 5] = [Format::Hermes, Format::QwenXml, Format::Llama, Format::Gemma, Format::FunctionGemma];

/// Reads a text in every form of calls: as a whole, and in pieces that end after those characters whose places, modulo 64,
/// are bits of `cuts`.
///
/// # Panics
/// If the two are not the same, if text is lost where there is no call, or if the arguments of a call are no JSON object.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "public for the fuzz target alone"))]
pub fn any_text_in_pieces_is_read_as_the_whole(text: &str, cuts: u64) {
    let pieces = pieces(text, cuts);
    for (format, parallel) in FORMATS.into_iter().flat_map(|format| [(format, true), (format, false)]) {
        let tools = toolbox(parallel);
        let whole = read(format, &tools, [text]);
        assert_eq!(read(format, &tools, pieces.iter().copied()), whole, "{format:?} in pieces");
        let (said, calls, called) = whole;
        assert!(called || said == text, "{format:?} lost text");
        for call in calls {
            let arguments = call.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or_default();
            assert!(serde_json::from_str::<Map<String, Value>>(arguments).is_ok(), "{format:?} {call}");
        }
    }
    let forced = Toolbox { forced: Some(vec![0, 1]), ..toolbox(false) };
    assert_eq!(read(Format::Hermes, &forced, pieces), read(Format::Hermes, &forced, [text]), "forced");
    // The insides of blocks alone, which a text has only between the right tags.
    let tools = toolbox(true).tools;
    let _ = (json::hermes(text, &tools), tagged::qwen(text, &tools), tagged::gemma(text, &tools));
}

fn pieces(text: &str, cuts: u64) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (place, (at, c)) in text.char_indices().enumerate() {
        if cuts >> (place % 64) & 1 == 1 {
            let end = at + c.len_utf8();
            pieces.push(&text[start..end]);
            start = end;
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// Two tools, `get_weather` and `now`.
pub(super) fn toolbox(parallel: bool) -> Toolbox {
    let tool = |name: &str, properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        let parameters = schema.as_object().cloned().unwrap_or_default();
        Tool { name: name.into(), description: None, parameters, strict: false }
    };
    let weather = json!({"city": {"type": "string"}, "days": {"type": "integer"}});
    let tools = vec![tool("get_weather", weather), tool("now", json!({}))];
    Toolbox { tools: tools.into(), parallel, ..Toolbox::default() }
}

/// Text, calls as `name(arguments)`, without brackets where there are no arguments yet, and whether the reader says that
/// there were any.
pub(super) fn read<'a>(
    format: Format,
    toolbox: &Toolbox,
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, Vec<String>, bool) {
    let mut reader = toolbox.reader(format);
    let mut parts = Vec::new();
    pieces.into_iter().for_each(|piece| reader.push(piece, &mut parts));
    reader.finish(&mut parts);
    let (mut said, mut calls) = (String::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text(more) => said += &more,
            Part::Reasoning(_) => unreachable!("readers see answers only"),
            Part::Call { index, id, name } => {
                assert!(index == calls.len() && id.starts_with("call_"));
                calls.push((name, None::<String>));
            }
            Part::Arguments { index, text } => *calls[index].1.get_or_insert_default() += &text,
        }
    }
    let call = |(name, arguments)| match arguments {
        Some(arguments) => format!("{name}({arguments})"),
        None => name,
    };
    (said, calls.into_iter().map(call).collect(), reader.called())
}
