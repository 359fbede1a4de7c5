//! Text as it streams: stop strings and reasoning blocks, both without ever taking back what was given out.

mod reasoning;
mod stop;

pub use reasoning::{Kind, Reasoning, Segment, Tags};
pub use stop::{Piece, StopStrings};
