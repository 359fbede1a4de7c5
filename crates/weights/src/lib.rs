//! What do these bytes mean: number formats and checkpoint files, mapped and checked.
