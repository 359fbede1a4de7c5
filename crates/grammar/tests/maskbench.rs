//! The sample of MaskBench, where it lies beside the repository: no invalid instance is accepted, no valid one rejected.

use lattice_grammar::{Bytes, Compiler, Constraint, GrammarSpec, in_schema_order};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Share of schemas that may be refused.
const REFUSED: f64 = 0.08;

#[test]
fn no_invalid_instance_is_accepted_and_few_schemas_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/maskbench-sample");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no {}", folder.display());
        return;
    };
    let compiler = Compiler::new(Bytes::shared(), &[Bytes::END]).expect("bytes");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let (mut refused, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
    for path in &files {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let case: Value = serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("JSON");
        let matcher = match compiler.compile(&GrammarSpec::JsonSchema(case["schema"].clone())) {
            Ok(matcher) => matcher,
            Err(error) => {
                println!("{name}: {error}");
                *refused.entry(error.keyword().unwrap_or("schema").to_owned()).or_default() += 1;
                continue;
            }
        };
        for (i, test) in case["tests"].as_array().into_iter().flatten().enumerate() {
            let ordered = in_schema_order(&case["schema"], &test["data"]).expect("it was compiled");
            let taken = |data: &Value| {
                let (mut matcher, text) = (matcher.clone(), data.to_string());
                let taken = text.bytes().take_while(|&byte| matcher.accept(byte.into()).is_ok()).count();
                (taken == text.len() && matcher.may_end(), text[..taken].to_owned())
            };
            let (fits, end) = match taken(&test["data"]) {
                (false, _) => taken(&ordered),
                fits => fits,
            };
            if fits != test["valid"].as_bool().expect("a flag") {
                wrong.push(format!("{name} test {i}: fits is {fits}, taken {end:?}"));
            }
        }
    }
    let share = refused.values().sum::<usize>() as f64 / files.len() as f64;
    println!("{} files, {:.1} % refused: {refused:?}", files.len(), share * 100.0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(share <= REFUSED, "{:.1} % refused", share * 100.0);
}
