//! The application's embedding service.
