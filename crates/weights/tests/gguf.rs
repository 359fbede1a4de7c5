//! Do whole GGUF files of other people's writing open, with the tensors that their cases say?

use lattice_weights::{Checkpoint, gguf::Strings};
use std::path::Path;

#[test]
fn golden_files_have_the_tensors_and_types_of_their_cases() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/goldens/cases");
    let Ok(folders) = std::fs::read_dir(&cases) else {
        eprintln!("skipped: the complete goldens are not there ({})", cases.display());
        return;
    };
    let mut seen = 0;
    for folder in folders.map(|f| f.unwrap().path()).filter(|f| f.join("model.gguf").exists()) {
        let checkpoint = Checkpoint::open(folder.join("model.gguf")).unwrap();
        let meta: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("meta.json")).unwrap()).unwrap();
        let types = meta["tensor_types"].as_object().unwrap();
        for (name, format) in types {
            let tensor = checkpoint.get(name).unwrap();
            assert_eq!(tensor.format().name(), format, "{name}");
            assert!(tensor.to_f32().unwrap().iter().all(|v| v.is_finite()), "{name}");
        }
        let metadata = checkpoint.metadata().unwrap();
        let arch = metadata.architecture().unwrap();
        let width = metadata.get::<usize>(&format!("{arch}.embedding_length")).unwrap();
        let tokens = metadata.find::<&Strings>("tokenizer.ggml.tokens").unwrap();
        let embedding = checkpoint.get("token_embd.weight").unwrap();
        assert_eq!(embedding.cols(), width);
        assert!(tokens.is_none_or(|tokens| tokens.len() == embedding.rows()), "{}", folder.display());
        seen += 1;
    }
    assert!(seen > 0, "{} holds no GGUF case", cases.display());
}
