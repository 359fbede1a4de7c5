//! The vocabulary of transformer operations, and its CPU executor.
