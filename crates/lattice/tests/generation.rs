//! The commands of language models as a user types them, on a small model of this repository.

mod common;
use common::{error, golden, root, run, run_with, stdout};
use serde_json::{Value, json};
use std::fs;

/// A model in a GGUF file, with its tokenizer and without a chat template.
fn model() -> String {
    golden("gguf_qwen3_q8_0/model.gguf")
}

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The same model in a folder, with a chat template and settings.
fn folder(template: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (from, to) in
        [("gguf_qwen3_q8_0/config.json", "config.json"), ("tokenizers/files/byte_bpe/tokenizer.json", "tokenizer.json")]
    {
        fs::copy(golden(from), dir.path().join(to)).unwrap();
    }
    let file = weights::Checkpoint::open(model()).unwrap();
    let view = file.as_hugging_face().unwrap();
    let float = |t: &weights::Tensor| weights::Tensor::from_f32(t.name(), t.shape().to_vec(), t.to_f32().unwrap());
    let tensors: Vec<weights::Tensor> = view.checkpoint.tensors().map(float).collect();
    weights::write_safetensors(dir.path().join("model.safetensors"), &tensors).unwrap();
    let config = json!({"chat_template": template, "eos_token": "<|im_end|>", "tokenizer_class": "Qwen2Tokenizer"});
    fs::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    dir
}

fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

fn list(ids: &Value) -> String {
    ids.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

/// The prompt that the reference goes on with.
fn greedy_prompt() -> String {
    let inputs = fs::read(golden("gguf_qwen3_q8_0/inputs.json")).unwrap();
    list(&serde_json::from_slice::<Value>(&inputs).unwrap()["greedy"]["prompt"])
}

#[test]
fn wrong_usage_is_status_2_and_what_is_not_built_is_refused_by_name() {
    let model = model();
    for wrong in [
        &["chat", "--json"][..],
        &["chat", "-p", "a", "--logprobs", "2"],
        &["chat", "-p", "a", "--think", "maybe"],
        &["generate"],
        &["generate", "--prompt", "a", "--ids", "1"],
        &["generate", "--prompt", "a", "--logit-bias", "the=1"],
        &["generate", "--prompt", "a", "--temperature", "warm"],
        &["generate", "--prompt", "a", "--json-schema", "a", "--grammar", "b"],
        &["ppl"],
        &["bench", "--reps", "0"],
    ] {
        let (status, stdout, _) = run(wrong);
        assert_eq!((status, stdout.as_str()), (2, ""), "{wrong:?}");
    }
    let message = error(&["generate", "--prompt", "a", "--model", &model, "--lora", "x"]);
    assert_eq!(message, "--lora is not built yet: leave it out");
    let message = error(&["generate", "--prompt", "a", "--model", &model, "--top-p", "1.5"]);
    assert_eq!(message, "top_p is 1.5, expected a number from 0 to 1 (off)");
    let message = error(&["generate", "--prompt", "a", "--model", &model, "--logit-bias", "640=1"]);
    assert!(message.starts_with("logit_bias names token 640, expected an id below 640"), "{message}");
    let message = error(&["chat", "-p", "a", "--model", &model]);
    assert!(message.starts_with("the model has no chat template: use generate"), "{message}");
}

#[test]
fn a_greedy_continuation_has_the_reference_s_ids() {
    let expected = weights::Checkpoint::open(root().join("goldens/gguf_qwen3_q8_0/expected.safetensors")).unwrap();
    let expected = expected.get("greedy.ids").unwrap().to_i64().unwrap();
    let (model, prompt, tokens) = (model(), greedy_prompt(), expected.len().to_string());
    let args = ["generate", "--model", &model, "--ids", &prompt, "--temperature", "0", "--ignore-eos", "--json"];
    let got = json_of(&[&args[..], &["-n", &tokens, "--precision", "exact"]].concat());
    assert_eq!(got["ids"], json!(expected));
    assert_eq!(got["finish_reason"], "length");
    let usage = json!({"prompt_tokens": 8, "completion_tokens": expected.len(), "cached_tokens": 0, "total_tokens": 8 + expected.len()});
    assert_eq!(got["usage"], usage);
    assert!(got["timings"]["prefill_seconds"].as_f64().unwrap() > 0.0);
    assert!(got.get("logprobs").is_none());
    // A bias can forbid the first of them.
    let bias = format!("{}=-inf", expected[0]);
    let other = json_of(&[&args[..], &["-n", "1", "--precision", "exact", "--logit-bias", &bias]].concat());
    assert_ne!(other["ids"], json!([expected[0]]));
}

#[test]
fn an_answer_is_held_to_a_schema_or_a_grammar() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let schema = r#"{"oneOf": [{"enum": ["Ada", "Grace"]}, {"type": "integer", "minimum": 1800, "maximum": 1999}]}"#;
    let schema = file("schema.json", schema);
    let (model, with_template) = (model(), folder(TEMPLATE));
    let folder = with_template.path().to_str().unwrap();
    for seed in ["1", "2", "3"] {
        let settings = ["--temperature", "1.5", "--seed", seed, "-n", "40", "--json-schema", &schema, "--json"];
        let generate = ["generate", "--model", &model, "--prompt", "A person:"];
        let chat = ["chat", "--model", folder, "-p", "Who?"];
        for args in [&generate[..], &chat] {
            let got = json_of(&[args, &settings].concat());
            assert_eq!(got["finish_reason"], "stop", "{got}");
            let text = got["text"].as_str().unwrap();
            let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let name = value.as_str().is_some_and(|name| ["Ada", "Grace"].contains(&name));
            assert!(name || value.as_u64().is_some_and(|year| (1800..2000).contains(&year)), "{text}");
        }
    }
    // Tokens that are forced have log-probabilities too, where these are asked for.
    let fixed = file("fixed.gbnf", "root ::= \"yes, \" (\"indeed\" | \"surely\")\n");
    let args =
        ["generate", "--model", &model, "--prompt", "Is it?", "--temperature", "0", "--json", "--grammar", &fixed];
    let (plain, logged) = (json_of(&args), json_of(&[&args[..], &["--logprobs", "0"]].concat()));
    assert!(["yes, indeed", "yes, surely"].contains(&plain["text"].as_str().unwrap()), "{plain}");
    assert_eq!(plain["text"], logged["text"]);
    assert_eq!(logged["logprobs"].as_array().unwrap().len(), logged["ids"].as_array().unwrap().len());

    let refused = file("refused.json", r#"{"type": "array", "uniqueItems": true}"#);
    let message = error(&["generate", "--prompt", "a", "--model", &model, "--json-schema", &refused]);
    assert!(message.starts_with("schema keyword uniqueItems at the root"), "{message}");
    let broken = file("broken.json", "{");
    let message = error(&["chat", "-p", "a", "--model", folder, "--json-schema", &broken]);
    assert!(message.contains("broken.json is not JSON"), "{message}");
}

#[test]
fn log_probabilities_are_of_the_text_and_with_echo_of_the_prompt() {
    let model = model();
    let args = ["generate", "--model", &model, "--prompt", "Hello world", "--temperature", "0", "-n", "4", "--json"];
    let plain = json_of(&[&args[..], &["--logprobs", "2", "--ignore-eos", "--precision", "exact"]].concat());
    let echo = json_of(&[&args[..], &["--logprobs", "2", "--ignore-eos", "--precision", "exact", "--echo"]].concat());
    let (ours, all) = (plain["logprobs"].as_array().unwrap(), echo["logprobs"].as_array().unwrap());
    let prompt = plain["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
    assert_eq!((ours.len(), all.len()), (4, prompt + 4));
    assert_eq!(&all[prompt..], ours.as_slice());
    assert_eq!(all[0]["logprob"], Value::Null, "nothing foretells the first");
    for token in &all[1..] {
        let (logprob, top) = (token["logprob"].as_f64().unwrap(), token["top_logprobs"].as_array().unwrap());
        assert!(logprob <= 0.0 && top.len() == 2, "{token}");
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64() && top[0]["bytes"].is_array());
        assert!(logprob <= top[0]["logprob"].as_f64().unwrap() + 1e-5);
    }
    assert_eq!(ours[0]["token"], ours[0]["top_logprobs"][0]["token"], "greedy takes the likeliest");
    assert_eq!(echo["text"], format!("Hello world{}", plain["text"].as_str().unwrap()));
    // The prompt that is scored without going on.
    let ids = list(&echo["ids"]);
    let args = ["generate", "--model", &model, "--ids", &ids, "-n", "0", "--echo", "--logprobs", "0", "--json"];
    let scored = json_of(&[&args[..], &["--precision", "exact"]].concat());
    assert_eq!(scored["usage"]["completion_tokens"], 0);
    for (a, b) in scored["logprobs"].as_array().unwrap().iter().zip(all).skip(1) {
        assert!((a["logprob"].as_f64().unwrap() - b["logprob"].as_f64().unwrap()).abs() < 1e-3, "{a} {b}");
    }
}

#[test]
fn a_stop_string_ends_the_text_before_it_streamed_and_unstreamed() {
    let (model, prompt) = (model(), greedy_prompt());
    let args = ["generate", "--model", &model, "--ids", &prompt, "--temperature", "0", "-n", "12", "--ignore-eos"];
    let whole = json_of(&[&args[..], &["--json"]].concat())["text"].as_str().unwrap().to_owned();
    assert_eq!(stdout(&args).trim_end_matches('\n'), whole.trim_end_matches('\n'), "streamed as unstreamed");
    // Two characters from the middle of the text; where they occur first, it ends.
    let stop: String = whole.chars().skip(whole.chars().count() / 2).take(2).collect();
    let cut = &whole[..whole.find(&stop).unwrap()];
    let with = [&args[..], &["--stop", "never there", "--stop", &stop]].concat();
    let got = json_of(&[&with[..], &["--json"]].concat());
    assert_eq!((got["text"].as_str().unwrap(), &got["finish_reason"]), (cut, &"stop".into()));
    assert_eq!(stdout(&with).trim_end_matches('\n'), cut.trim_end_matches('\n'));
}

#[test]
fn a_seed_makes_the_choice_repeatable() {
    let model = model();
    let text = |seed: &str| stdout(&["generate", "--model", &model, "--prompt", "Hello", "-n", "24", "--seed", seed]);
    assert_eq!(text("7"), text("7"));
    assert_ne!(text("7"), text("8"));
}

#[test]
fn a_prompt_that_does_not_fit_is_an_error_with_both_numbers() {
    let (model, prompt) = (model(), greedy_prompt());
    let message = error(&["generate", "--model", &model, "--ids", &prompt, "--ctx", "8"]);
    assert_eq!(
        message,
        "the prompt has 8 tokens, but the context is 8, and one more must fit: shorten it, or raise the context (--ctx)"
    );
    let message = error(&["generate", "--model", &model, "--ids", &prompt, "--ctx", "100000"]);
    assert!(message.starts_with("a context of 100000 tokens was asked for, expected 1 to 512"), "{message}");
    // Without --max-tokens in the way, a full context ends the text.
    let args = ["generate", "--model", &model, "--ids", &prompt, "--ctx", "12", "--ignore-eos", "--json"];
    let got = json_of(&args);
    assert_eq!((&got["finish_reason"], &got["usage"]["total_tokens"]), (&"length".into(), &12.into()));
}

#[test]
fn chat_answers_the_prompt_literally_and_reads_no_stdin() {
    let dir = folder(TEMPLATE);
    let model = dir.path().to_str().unwrap();
    let args = ["chat", "--model", model, "-p", "/help", "--temperature", "0", "--max-tokens", "6", "--json"];
    let got = json_of(&args);
    assert!(got["text"].is_string() && got.get("reasoning").is_none());
    assert_eq!(got["usage"]["total_tokens"], 6 + got["usage"]["prompt_tokens"].as_u64().unwrap());
    let (status, text, _) = run_with(&args, b"something else\n");
    assert_eq!((status, serde_json::from_str::<Value>(&text).unwrap()["text"].clone()), (0, got["text"].clone()));
    let system = json_of(&[&args[..], &["--system", "Be brief."]].concat());
    assert!(system["usage"]["prompt_tokens"].as_u64() > got["usage"]["prompt_tokens"].as_u64());
    let scored = json_of(&[&args[..], &["--logprobs", "1"]].concat());
    assert_eq!(scored["logprobs"].as_array().unwrap().len(), 6);
    let message = error(&[&args[..], &["--think", "on"]].concat());
    assert_eq!(message, "the model's chat template knows of no reasoning: leave --think out");
}

#[test]
fn what_a_prompt_opens_as_reasoning_comes_apart_from_the_answer() {
    let dir = folder(&format!("{TEMPLATE}<think>\n{{# </think> #}}"));
    let model = dir.path().to_str().unwrap();
    let args = ["chat", "--model", model, "-p", "a", "--temperature", "0", "--max-tokens", "6"];
    let got = json_of(&[&args[..], &["--json"]].concat());
    assert_eq!(got["text"], "", "a block that never closes is reasoning");
    assert!(!got["reasoning"].as_str().unwrap().is_empty());
    assert_eq!(stdout(&args), "", "a pipe has the answer only");
    assert!(stdout(&[&args[..], &["--show-reasoning"]].concat()).contains(got["reasoning"].as_str().unwrap().trim()));
}

#[test]
fn a_conversation_takes_commands_and_goes_on_after_an_error() {
    let dir = folder(TEMPLATE);
    let (model, file) = (dir.path().to_str().unwrap(), dir.path().join("talk.json"));
    let long = "word ".repeat(200);
    let lines = format!(
        "/stats\n/dance\n/system Be brief.\n/system\nhello\n{long}\nmore\n/stats\n/save {}\n/clear\n/save /no/such/dir/x\n/quit\nnever\n",
        file.display()
    );
    let args = ["chat", "--model", model, "--temperature", "0", "--max-tokens", "4", "--ctx", "128"];
    let (status, _, stderr) = run_with(&args, lines.as_bytes());
    assert_eq!(status, 0, "{stderr}");
    for expected in [
        "nothing was said yet",
        "/dance is no command; /help lists them",
        "Be brief.\n",
        "but the context is 128",
        "answer 4 tokens",
        "cannot write /no/such/dir/x",
    ] {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
    // The last answer's prompt: all but what is new in it was computed in the turn before.
    let known = stderr.split(" of them known").next().and_then(|text| text.rsplit(' ').next()).unwrap();
    assert!(known.parse::<usize>().unwrap() > 10, "{known}: {stderr}");
    let talk: Vec<Value> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let roles: Vec<&str> = talk.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"], "the question that failed is not in it");
}

#[test]
fn perplexity_has_an_error_and_refuses_a_text_shorter_than_a_chunk() {
    let (model, dir) = (model(), tempfile::tempdir().unwrap());
    let file = dir.path().join("text.txt");
    fs::write(&file, "The quick brown fox jumps over the lazy dog. ".repeat(40)).unwrap();
    let file = file.to_str().unwrap();
    let got = json_of(&["ppl", "--model", &model, "-f", file, "--ctx", "64", "--chunks", "3", "--json"]);
    assert_eq!(got["tokens"], 3 * 31);
    assert!(got["ppl"].as_f64().unwrap() > 1.0 && got["stderr"].as_f64().unwrap() > 0.0, "{got}");
    let same = json_of(&["ppl", "--model", &model, "-f", file, "--ctx", "64", "--tokens", "200", "--json"]);
    assert_eq!(same["ppl"], got["ppl"]);
    assert!(stdout(&["ppl", "--model", &model, "-f", file, "--ctx", "64", "--chunks", "1"]).starts_with("perplexity "));
    fs::write(dir.path().join("short.txt"), "hello").unwrap();
    let message = error(&["ppl", "--model", &model, "-f", dir.path().join("short.txt").to_str().unwrap()]);
    assert!(message.contains("one chunk has 512: give more text, or a shorter context (--ctx)"), "{message}");
}

#[test]
fn bench_gives_a_row_for_each_test_and_depth() {
    let model = model();
    let args =
        ["bench", "--model", &model, "--pp", "16,32", "--tg", "4", "--depth", "0,8", "--reps", "2", "--threads", "2"];
    let rows = json_of(&[&args[..], &["--json"]].concat());
    let rows = rows.as_array().unwrap();
    let names: Vec<String> = rows.iter().map(|r| format!("{}@{}", r["test"].as_str().unwrap(), r["depth"])).collect();
    assert_eq!(names, ["pp16@0", "pp32@0", "tg4@0", "pp16@8", "pp32@8", "tg4@8"]);
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("min") <= number("tokens_per_second") && number("tokens_per_second") <= number("max"), "{row}");
        assert_eq!((&row["threads"], &row["reps"]), (&2.into(), &2.into()));
        assert_eq!(row.get("share").is_some(), row["test"] == "tg4");
    }
    assert!(stdout(&args).contains("tokens/s"));
    let message = error(&["bench", "--model", &model, "--pp", "1000"]);
    assert!(message.starts_with("a context of 1000 tokens was asked for"), "{message}");
}

#[test]
fn a_gguf_file_has_a_tokenizer_and_a_report() {
    let model = model();
    let row: Value = serde_json::from_str(&stdout(&["tokenize", "--model", &model, "--json", "Hello world"])).unwrap();
    let ids = list(&row["ids"]);
    assert_eq!(stdout(&["detokenize", "--model", &model, &ids]), "Hello world\n");
    let report = json_of(&["inspect", &model, "--json"]);
    assert_eq!((&report["lattice"]["as"], &report["lattice"]["chat"]), (&"language model".into(), &false.into()));
    assert_eq!(report["lattice"]["window"], 512);
}

#[test]
fn doctor_tells_of_the_machine_and_of_what_a_model_needs() {
    let machine = json_of(&["doctor", "--json"]);
    assert!(machine["isa"]["available"].as_array().unwrap().contains(&machine["isa"]["used"]));
    assert_eq!(machine["gpu"], "no GPU executor in this build");
    assert_eq!(machine["hub"]["reachable"], "not tried: --online does");
    let model = model();
    let needs = json_of(&["doctor", "--model", &model, "--ctx", "100", "--json"])["model"].clone();
    assert_eq!(needs["kv_f32_bytes"].as_u64(), needs["kv_f16_bytes"].as_u64().map(|n| 2 * n));
    let file = fs::metadata(&model).unwrap().len();
    let weights = needs["weights"]["bytes"].as_u64().unwrap();
    assert!(weights < file && weights > file / 2, "{needs}");
    assert_eq!((&needs["context"], &needs["fits"]), (&100.into(), &true.into()));
    assert!(stdout(&["doctor", "--model", &model]).contains("kv f16: "));
    let message = error(&["doctor", "--model", &model, "--ctx", "100000"]);
    assert!(message.starts_with("a context of 100000 tokens was asked for"), "{message}");
}
