//! The arrows between the crates stay one-way, as docs/architecture.md draws them.

use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::BTreeSet;

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
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name.as_str()) else {
            wrong.push(format!("{} has no row in the table of arrows", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development) {
            if dependency.path.is_some() && !allowed.contains(&dependency.name.as_str()) {
                wrong.push(format!("{} must not build on {}", package.name, dependency.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_of_arrows_has_no_circle() {
    let mut below = BTreeSet::new();
    for (name, allowed) in ARROWS {
        assert!(allowed.iter().all(|other| below.contains(other)), "{name} is above something that it builds on");
        below.insert(*name);
    }
}
