//! The arrows between the crates stay one-way, as docs/architecture.md draws them.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Each crate and what it may build on, besides itself. A crate comes after all that it may build on.
const ARROWS: &[(&str, &[&str])] = &[
    ("lattice-weights", &[]),
    ("lattice-tokenizer", &[]),
    ("lattice-grammar", &[]),
    ("lattice-hub", &[]),
    ("lattice-kernels", &["lattice-weights"]),
    ("lattice-ops", &["lattice-kernels", "lattice-weights"]),
    ("lattice-models", &["lattice-ops", "lattice-weights"]),
    (
        "lattice-inference",
        &["lattice-grammar", "lattice-models", "lattice-ops", "lattice-tokenizer", "lattice-weights"],
    ),
    (
        "lattice-embed",
        &[
            "lattice-inference",
            "lattice-hub",
            "lattice-kernels",
            "lattice-models",
            "lattice-ops",
            "lattice-tokenizer",
            "lattice-weights",
        ],
    ),
    (
        "lattice-serve",
        &[
            "lattice-embed",
            "lattice-grammar",
            "lattice-inference",
            "lattice-hub",
            "lattice-kernels",
            "lattice-models",
            "lattice-ops",
            "lattice-tokenizer",
            "lattice-weights",
        ],
    ),
    (
        "lattice",
        &[
            "lattice-embed",
            "lattice-grammar",
            "lattice-serve",
            "lattice-inference",
            "lattice-hub",
            "lattice-kernels",
            "lattice-models",
            "lattice-ops",
            "lattice-tokenizer",
            "lattice-weights",
        ],
    ),
];

#[test]
fn crates_build_only_on_those_below_them() {
    let mut wrong = Vec::new();
    for package in packages() {
        let name = text(&package, "name");
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("{name} has no row in the table of arrows"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            let other = text(dependency, "name");
            // A path is one of ours, and no kind an ordinary one.
            if dependency["path"].is_string() && dependency["kind"] != "dev" && !allowed.contains(&other) {
                wrong.push(format!("{name} must not build on {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The packages of the workspace, as `cargo metadata` describes them.
fn packages() -> Vec<Value> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let mut metadata: Value = serde_json::from_slice(&cargo.stdout).expect("cargo metadata is JSON");
    let Value::Array(packages) = metadata["packages"].take() else { panic!("no list of packages") };
    assert!(packages.len() >= ARROWS.len(), "{} packages", packages.len());
    packages
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} of {value}"))
}

#[test]
fn the_table_of_arrows_has_no_circle() {
    let mut below = BTreeSet::new();
    for (name, allowed) in ARROWS {
        assert!(allowed.iter().all(|other| below.contains(other)), "{name} is above something that it builds on");
        below.insert(*name);
    }
}
