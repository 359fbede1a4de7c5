//! TLS of the server: rustls with cryptography that needs no C compiler.

use crate::error::ServeError;
use crate::options::TlsFiles;
use axum_server::tls_rustls::RustlsConfig;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn provider() -> CryptoProvider {
    rustls_graviola::default_provider()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Reads certificate and key.
pub(crate) fn config(files: &TlsFiles) -> Result<RustlsConfig, ServeError> {
    let fail = |path: &Path, reason: String| ServeError::Tls { path: path.to_owned(), reason };
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(&files.certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|e| fail(&files.certificate, e.to_string()))?;
    if chain.is_empty() {
        return Err(fail(&files.certificate, "has no certificate in PEM form".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| fail(&files.key, e.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| fail(&files.certificate, e.to_string()))?;
    let mut config = config;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}
