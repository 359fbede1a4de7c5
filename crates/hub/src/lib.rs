//! Where models come from: catalog, cache directory, verified resumable download.
