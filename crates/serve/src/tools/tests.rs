//! Calls in the words of each family, whole and in pieces, and texts that only look like calls.

use super::claim::{any_text_in_pieces_is_read_as_the_whole, read, toolbox};
use super::*;
use proptest::prelude::*;

const HERMES: &str = "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
const QWEN: &str = "Hm.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>";
const GEMMA: &str =
    "<|tool_call>call:get_weather{city:<|\"|>St. {X}, \"Y\"<|\"|>,days:2,more:[1,{a:true}]}<tool_call|>";
const FUNCTION_GEMMA: &str =
    "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}<end_function_call>";
const LLAMA: &str =
    " {\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}; {\"name\": \"now\", \"parameters\": {}}";

#[test]
fn every_family_s_calls_are_read() {
    let tools = toolbox(true);
    let weather = r#"get_weather({"city":"Paris","days":2})"#.to_owned();
    let (text, calls, called) = read(Format::Hermes, &tools, [HERMES]);
    assert_eq!((text.as_str(), calls, called), ("Let me see.", vec![weather.clone(), "now({})".into()], true));
    let (text, calls, _) = read(Format::QwenXml, &tools, [QWEN]);
    assert_eq!((text.as_str(), calls), ("Hm.", vec![r#"get_weather({"city":"12","days":2})"#.into()]));
    let (text, calls, _) = read(Format::Gemma, &tools, [GEMMA]);
    let right = r#"get_weather({"city":"St. {X}, \"Y\"","days":2,"more":[1,{"a":true}]})"#;
    assert_eq!((text.as_str(), calls), ("", vec![right.into()]));
    assert_eq!(read(Format::FunctionGemma, &tools, [FUNCTION_GEMMA]).1, [weather]);
    let (text, calls, _) = read(Format::Llama, &tools, [LLAMA]);
    assert_eq!((text.as_str(), calls), ("", vec![r#"get_weather({"city":"Paris"})"#.into(), "now({})".into()]));
}

#[test]
fn one_call_is_one_where_no_more_were_asked_for() {
    let (text, calls, _) = read(Format::Hermes, &toolbox(false), [HERMES, " and more"]);
    assert_eq!((text.as_str(), calls.len()), ("Let me see.", 1));
    assert_eq!(read(Format::Llama, &toolbox(false), [LLAMA]).1.len(), 1);
}

#[test]
fn what_is_no_call_of_a_declared_tool_stays_text() {
    let tools = toolbox(true);
    for text in [
        "Use <tool_call> for calls.",
        "<tool_call>\nnot JSON\n</tool_call>",
        "<tool_call>\n{\"name\": \"rm_rf\", \"arguments\": {}}\n</tool_call> after",
        "<tool_call>{\"name\": \"now\", \"arguments\": 5}</tool_call>",
        "a < b <tool",
        "",
    ] {
        assert_eq!(read(Format::Hermes, &tools, [text]), (text.to_owned(), vec![], false));
    }
    for text in ["{\"name\": \"other\", \"parameters\": {}}", "{ is a bracket", "Hello {\"name\": \"now\"}"] {
        assert_eq!(read(Format::Llama, &tools, [text]), (text.to_owned(), vec![], false));
    }
    let deep = format!("<|tool_call>call:now{{a:{}}}<tool_call|>", "[".repeat(60_000));
    assert_eq!(read(Format::Gemma, &tools, [deep.as_str()]).0, deep);
}

#[test]
fn a_call_without_its_last_tag_is_a_call() {
    let cut = HERMES.strip_suffix("\n</tool_call>").unwrap();
    assert_eq!(read(Format::Hermes, &toolbox(true), [cut]).1.len(), 2);
}

#[test]
fn a_forced_call_is_given_as_it_is_written() {
    let forced = Toolbox { forced: Some(vec![0, 1]), ..toolbox(true) };
    let right = r#"{"city": "}{\"} ", "days": {}}"#;
    let whole = format!("{{\"name\": \"get_weather\", \"arguments\": {right}\n }}\n");
    for end in 0..=whole.len() {
        let cut = &whole[..end];
        let (text, calls, called) = read(Format::Hermes, &forced, [cut]);
        let pieces = read(Format::Hermes, &forced, (0..end).map(|i| &cut[i..=i]));
        assert_eq!((&pieces.0, &pieces.1, pieces.2), (&text, &calls, called), "{cut}");
        assert_eq!((text.as_str(), called), ("", cut.contains("weather\"")), "{cut}");
        let Some(call) = calls.first() else { continue };
        let arguments = call.strip_prefix("get_weather").unwrap();
        let arguments = arguments.strip_prefix('(').map_or("", |rest| rest.strip_suffix(')').unwrap());
        assert!(right.starts_with(arguments.trim_end()), "{cut}: {arguments}");
        assert!(arguments == right || !cut.contains("\n }"), "{cut}: {arguments}");
    }
    let (_, calls, _) = read(Format::Hermes, &forced, [r#"{"name":"now","arguments":{}}"#]);
    assert_eq!(calls, ["now({})"]);
}

#[test]
fn templates_tell_their_family() {
    for (source, format) in [
        ("{{ messages }}", Format::Hermes),
        ("{% if tools %}<tool_call>", Format::Hermes),
        ("tools <tool_call> <function=", Format::QwenXml),
        ("tools \"parameters\" <|python_tag|>", Format::Llama),
        ("tools <|tool_call>", Format::Gemma),
        ("tools <start_function_call>", Format::FunctionGemma),
        ("tools [TOOL_CALLS]", Format::Unknown),
    ] {
        assert_eq!(Format::of_template(source), format, "{source}");
    }
}

#[test]
fn templates_without_a_place_are_told_in_a_system_message() {
    let messages = vec![
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Weather?"}),
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "now", "arguments": {"a": 1}}}]}),
        json!({"role": "tool", "content": "12:00", "tool_call_id": "1"}),
    ];
    let told = tell(messages.clone(), &toolbox(true), Format::Hermes, false).unwrap();
    assert_eq!(told.tools, None);
    let system = told.messages[0]["content"].as_str().unwrap();
    assert!(system.starts_with("Be brief.\n\n# Tools\n\n"), "{system}");
    assert!(system.contains("\n{\"type\": \"function\", \"function\": {\"name\": \"now\", \"parameters\""), "{system}");
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    assert_eq!(told.messages[2], json!({"role": "assistant", "content": call}));
    let result = "<tool_response>\n12:00\n</tool_response>";
    assert_eq!(told.messages[3], json!({"role": "user", "content": result}));
    let told = tell(messages.clone(), &toolbox(true), Format::Hermes, true).unwrap();
    assert_eq!((told.messages == messages, told.tools.map(|tools| tools.len())), (true, Some(2)));
    assert_eq!(tell(messages, &toolbox(true), Format::Unknown, true).unwrap_err().param.as_deref(), Some("tools"));
}

proptest! {
    #[test]
    fn a_text_in_pieces_is_read_as_the_whole(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        which in 0..5usize,
        before in "[a<{ \n]{0,6}",
        after in "[a<{ \n]{0,6}",
    ) {
        let (format, text) = [
            (Format::Hermes, HERMES), (Format::QwenXml, QWEN), (Format::Gemma, GEMMA),
            (Format::FunctionGemma, FUNCTION_GEMMA), (Format::Llama, LLAMA),
        ][which];
        let text = format!("{before}{text}{after}");
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        at.extend([0, text.len()]);
        at.sort_unstable();
        let pieces: Vec<&str> = at.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        prop_assert_eq!(read(format, &toolbox(true), pieces), read(format, &toolbox(true), [text.as_str()]));
    }
}

/// Scraps of calls in every form, whole calls among them, and any characters.
fn scraps() -> impl Strategy<Value = String> {
    let scrap = prop_oneof![
        8 => prop::sample::select(vec![
            "<tool_call>", "</tool_call>", "<|tool_call>", "<tool_call|>", "<start_function_call>", "<end_function_call>",
            "<function=", "</function>", "<parameter=", "</parameter>", "call:", "<|\"|>", "<escape>", "get_weather", "now",
            "city", "days", "{\"name\": \"now\"", ", \"arguments\": ", ", \"parameters\": ", "\"city\": ", "{}", "true", "12",
        ]).prop_map(str::to_owned),
        8 => "[<>{}\\[\\]:;,\"/|=a \n]{1,3}",
        1 => prop::sample::select(vec![HERMES, QWEN, GEMMA, FUNCTION_GEMMA, LLAMA]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(scrap, 0..24).prop_map(|scraps| scraps.concat())
}

proptest! {
    // A case takes microseconds.
    #![proptest_config(ProptestConfig { cases: 32 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    #[test]
    fn garbage_in_any_pieces_is_read_as_the_whole_and_never_a_panic(text in scraps(), cuts in any::<u64>()) {
        any_text_in_pieces_is_read_as_the_whole(&text, cuts);
    }
}
