//! Ragged encoding: pack texts, run the forward pass, pool or classify.
