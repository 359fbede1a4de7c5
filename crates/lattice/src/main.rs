//! The `lattice` command.

fn main() {}
