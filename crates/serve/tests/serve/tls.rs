//! HTTPS, with a certificate of the tests' own.

use crate::common::{Live, TEMPLATE, model, options, question, tiny};
use lattice_serve::{Server, TlsFiles};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/data").join(name)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn provider() -> rustls::crypto::CryptoProvider {
    rustls_graviola::default_provider()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn provider() -> rustls::crypto::CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Sends a request, and reads the answer to its end.
fn ask(live: &Live, request: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(data("cert.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(live.address)?);
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(String::from_utf8_lossy(&text).into_owned()),
    }
}

#[test]
fn a_request_over_tls_is_answered_and_one_without_it_is_not() {
    let dir = tiny(TEMPLATE);
    let mut options = options(vec![model("tiny", dir.path())]);
    options.tls = Some(TlsFiles { certificate: data("cert.pem"), key: data("key.pem") });
    let live = Live::start_unready(options);
    let body = question("Hello").to_string();
    let head = "host: localhost\r\nconnection: close\r\ncontent-type: application/json";
    let request =
        format!("POST /v1/chat/completions HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let answer = ask(&live, &request).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("chat.completion"), "{answer}");
    let mut plain = TcpStream::connect(live.address).unwrap();
    plain.write_all(request.as_bytes()).unwrap();
    let mut text = Vec::new();
    let _ = plain.read_to_end(&mut text);
    assert!(!text.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn files_that_are_no_certificate_or_key_keep_it_from_serving() {
    let dir = tiny(TEMPLATE);
    for (certificate, key, part) in [
        (data("none.pem"), data("key.pem"), "none.pem"),
        (data("key.pem"), data("key.pem"), "has no certificate in PEM form"),
        (data("cert.pem"), data("cert.pem"), "cert.pem"),
    ] {
        let mut options = options(vec![model("tiny", dir.path())]);
        options.tls = Some(TlsFiles { certificate, key });
        let error = Server::bind(options).unwrap().block(|| false).unwrap_err().to_string();
        assert!(error.starts_with("TLS: ") && error.contains(part), "{error}");
    }
}
