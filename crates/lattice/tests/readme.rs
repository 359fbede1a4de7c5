//! The README's tables say what the registries say.

use std::path::Path;

/// What stands between the README's marks.
fn tables() -> String {
    let mut text = String::from("| family | Hugging Face classes |\n|---|---|\n");
    for arch in models::ARCHITECTURES {
        let classes: Vec<String> =
            arch.names.iter().filter(|n| n.contains(char::is_uppercase)).map(|n| format!("`{n}`")).collect();
        text += &format!("| {} | {} |\n", arch.family, classes.join(", "));
    }
    let names = |keep: &dyn Fn(&weights::format::Row) -> bool| {
        weights::FORMATS.iter().filter(|row| keep(row)).map(|row| row.name).collect::<Vec<_>>().join(", ")
    };
    text += "\n| weights | |\n|---|---|\n";
    text += &format!("| safetensors | {} |\n", names(&|r| ["F64", "F32", "F16", "BF16"].contains(&r.name)));
    text += &format!("| GGUF, in blocks | {} |\n", names(&|r| r.block > 1));
    let isas: Vec<&str> = ops::Isa::ALL.iter().map(|isa| isa.name()).collect();
    text += &format!("\n| device | |\n|---|---|\n| CPU | {} |\n", isas.join(", "));
    text
}

#[test]
fn the_readme_lists_what_the_registries_hold() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).expect("a README");
    let (_, rest) = text.split_once("<!-- registries -->\n").expect("a mark where the tables begin");
    let (stands, _) = rest.split_once("<!-- /registries -->").expect("a mark where they end");
    assert_eq!(stands, tables(), "put this between the README's marks:\n\n{}", tables());
}
