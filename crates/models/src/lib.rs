//! Architectures: config.json plus a composition of shared blocks.
