//! How is one address asked? Over ureq and rustls, with redirects followed by hand: the token goes to the Hub alone, and
//! what the Hub says about a large file stands in the redirect, not in the answer behind it.

use crate::{HubError, Options, Progress, Token};
use std::io::Read;
use std::time::Duration;
use ureq::http::Uri;
use ureq::http::header::HeaderMap;
use ureq::tls::{RootCerts, TlsConfig};

const MAX_HOPS: usize = 10;
/// A server that asks for a longer pause is given up.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Asks a Hub.
pub(crate) struct Client {
    agent: ureq::Agent,
    /// Without a slash at the end.
    pub(crate) endpoint: String,
    origin: Origin,
    token: Option<Token>,
    retries: u32,
    backoff: Duration,
}

/// An answer with one of the statuses 200, 206 and 416.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    /// Length of the body.
    pub(crate) length: Option<u64>,
    /// Where the body begins in the file and how long that is, if it is a part.
    pub(crate) range: Option<(u64, Option<u64>)>,
    /// The checksum that the Hub told on the way.
    pub(crate) sha256: Option<String>,
    pub(crate) body: Box<dyn Read>,
}

/// Scheme, host and port: who gets to see the token.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    https: bool,
    host: String,
    port: u16,
}

impl Client {
    pub(crate) fn new(options: &Options) -> Result<Client, HubError> {
        let endpoint = options.endpoint.trim_end_matches('/').to_owned();
        let uri: Option<Uri> = endpoint.parse().ok();
        let origin = uri.as_ref().and_then(Origin::of).ok_or(HubError::Endpoint { endpoint: endpoint.clone() })?;
        let mut config = ureq::Agent::config_builder()
            .user_agent(concat!("lattice/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(options.connect_timeout))
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.response_timeout))
            .timeout_per_read(Some(options.stall_timeout));
        if origin.https {
            config = config.tls_config(tls()?);
        }
        if origin.is_loopback() {
            config = config.proxy(None);
        }
        Ok(Client {
            agent: config.build().into(),
            endpoint,
            origin,
            token: options.token.clone(),
            retries: options.retries,
            backoff: options.backoff,
        })
    }

    /// GETs `url`; with `range`, what follows its first bytes, if its validator still holds.
    pub(crate) fn get(&self, url: &str, range: Option<(u64, &str)>) -> Result<Answer, HubError> {
        let network = |problem: String| HubError::Network { url: url.to_owned(), problem };
        let protocol = |problem: &str| HubError::Protocol { url: url.to_owned(), problem: problem.to_owned() };
        let mut here: Uri = url.parse().map_err(|_| protocol("this is no address"))?;
        let mut sha256 = None;
        for _ in 0..MAX_HOPS {
            let origin = Origin::of(&here).ok_or_else(|| protocol("the redirect is to no http(s) address"))?;
            if self.origin.https && !origin.https {
                return Err(protocol("the redirect leaves HTTPS"));
            }
            let mut request = self.agent.get(&here).header("Accept-Encoding", "identity");
            let token = self.token.as_ref().filter(|_| origin == self.origin);
            if let Some(token) = token {
                request = request.header("Authorization", token.header());
            }
            if let Some((start, etag)) = range {
                request = request.header("Range", format!("bytes={start}-")).header("If-Range", etag);
            }
            let response = request.call().map_err(|e| network(say(e)))?;
            let status = response.status().as_u16();
            let headers = response.headers();
            tracing::debug!(host = %origin.host, status, "GET");
            match status {
                301 | 302 | 303 | 307 | 308 => {
                    sha256 = sha256.or_else(|| text(headers, "x-linked-etag").and_then(as_sha256));
                    let location = text(headers, "location").ok_or_else(|| protocol("a redirect to nowhere"))?;
                    here = join(&here, location).ok_or_else(|| protocol("a redirect to no address"))?;
                }
                200 | 206 | 416 => {
                    if text(headers, "content-encoding").is_some_and(|e| e != "identity") {
                        return Err(protocol("the file comes in an encoding that was not asked for"));
                    }
                    let etag = text(headers, "etag").map(str::to_owned);
                    let length = text(headers, "content-length").and_then(|l| l.parse().ok());
                    let part = text(headers, "content-range").and_then(content_range);
                    return Ok(Answer {
                        status,
                        etag,
                        length,
                        range: part.filter(|_| status == 206),
                        sha256: sha256.or_else(|| text(headers, "x-linked-etag").and_then(as_sha256)),
                        body: Box::new(response.into_body().into_reader()),
                    });
                }
                _ => return Err(self.refusal(url, status, headers, token.is_some())),
            }
        }
        Err(protocol("it redirects in circles"))
    }

    /// A refusal in our words.
    fn refusal(&self, url: &str, status: u16, headers: &HeaderMap, had_token: bool) -> HubError {
        let url = url.to_owned();
        let what = text(headers, "x-error-message").or_else(|| text(headers, "x-error-code")).unwrap_or_default();
        let what: String = what.chars().filter(|c| !c.is_control()).take(200).collect();
        let what = if what.is_empty() { what } else { format!("({what})") };
        match status {
            401 => HubError::Unauthorized { url, what, had_token },
            403 => {
                let rest = url.strip_prefix(&self.endpoint).unwrap_or_default();
                let rest = rest.strip_prefix("/api/models").unwrap_or(rest);
                let repo: Vec<&str> = rest.split('/').filter(|p| !p.is_empty()).take(2).collect();
                let page = format!("{}/{}", self.endpoint, repo.join("/"));
                HubError::Forbidden { url, what, page, had_token }
            }
            404 => HubError::NotFound { url },
            408 | 429 | 500..=599 => {
                let wait = text(headers, "retry-after").and_then(|s| s.parse().ok()).map(Duration::from_secs);
                HubError::Busy { url, status, wait }
            }
            _ => HubError::Protocol { url, problem: format!("the answer has status {status}") },
        }
    }

    /// Does `work` until it succeeds, fails for good, or failed too often in a row. `work` says by its second value
    /// whether it got on. `unreachable` tells whether a host that cannot be reached is worth another try.
    pub(crate) fn persist<T>(
        &self,
        file: &str,
        unreachable: bool,
        progress: &mut dyn Progress,
        mut work: impl FnMut(&mut dyn Progress) -> (Result<T, HubError>, bool),
    ) -> Result<T, HubError> {
        let mut failures = 0;
        loop {
            let (result, got_on) = work(progress);
            let error = match result {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            failures = if got_on { 1 } else { failures + 1 };
            let doubled = self.backoff.saturating_mul(1 << (failures - 1).min(6));
            let pause = match &error {
                HubError::Busy { wait, .. } => wait.unwrap_or(doubled),
                HubError::Network { .. } if unreachable => doubled,
                _ => return Err(error),
            };
            if failures > self.retries || pause > MAX_WAIT {
                return Err(error);
            }
            tracing::debug!(%error, ?pause, "trying again");
            progress.on(&crate::Event::Retrying { file, error: &error, pause });
            std::thread::sleep(pause);
        }
    }
}

impl Origin {
    fn of(uri: &Uri) -> Option<Origin> {
        let https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        Some(Origin { https, host: uri.host()?.to_ascii_lowercase(), port })
    }

    fn is_loopback(&self) -> bool {
        let ip = self.host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        self.host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// A validator that is a SHA-256.
fn as_sha256(etag: &str) -> Option<String> {
    let hex = etag.trim_matches('"');
    is_sha256(hex).then(|| hex.to_ascii_lowercase())
}

pub(crate) fn is_sha256(hex: &str) -> bool {
    hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `bytes 5-9/10` → (5, Some(10)).
fn content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}

/// Where `location` leads from `here`.
fn join(here: &Uri, location: &str) -> Option<Uri> {
    if location.starts_with("http://") || location.starts_with("https://") {
        return location.parse().ok();
    }
    let scheme = here.scheme_str()?;
    if let Some(rest) = location.strip_prefix("//") {
        return format!("{scheme}://{rest}").parse().ok();
    }
    let folder = &here.path()[..=here.path().rfind('/')?];
    let folder = if location.starts_with('/') { "" } else { folder };
    format!("{scheme}://{}{folder}{location}", here.authority()?).parse().ok()
}

/// `text` as one segment of an address's path.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

fn say(error: ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "the host name is not known".into(),
        ureq::Error::ConnectionFailed => "no connection".into(),
        ureq::Error::Timeout(what) => format!("no answer in time ({what})"),
        ureq::Error::Io(error) if error.to_string().contains("certificate") => {
            format!("{error} (where a proxy inspects TLS, let SSL_CERT_FILE name the certificates to trust)")
        }
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn tls() -> Result<TlsConfig, HubError> {
    let builder = TlsConfig::builder().root_certs(roots());
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let builder = {
        check_cpu()?;
        builder.unversioned_rustls_crypto_provider(std::sync::Arc::new(rustls_graviola::default_provider()))
    };
    Ok(builder.build())
}

/// The system's root certificates; a system without any (a slim container) gets those compiled in.
fn roots() -> RootCerts {
    #[cfg(all(unix, not(target_vendor = "apple"), not(target_os = "android")))]
    if rustls_native_certs::load_native_certs().certs.is_empty() {
        tracing::debug!("no system certificates: using those compiled in");
        return RootCerts::WebPki;
    }
    RootCerts::PlatformVerifier
}

/// What graviola asserts, asked before it does.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn check_cpu() -> Result<(), HubError> {
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("AES", is_x86_feature_detected!("aes")),
        ("PCLMULQDQ", is_x86_feature_detected!("pclmulqdq")),
        ("BMI1", is_x86_feature_detected!("bmi1")),
        ("BMI2", is_x86_feature_detected!("bmi2")),
        ("ADX", is_x86_feature_detected!("adx")),
        ("AVX2", is_x86_feature_detected!("avx") && is_x86_feature_detected!("avx2")),
    ];
    #[cfg(target_arch = "aarch64")]
    let features = [
        ("NEON", std::arch::is_aarch64_feature_detected!("neon")),
        ("AES", std::arch::is_aarch64_feature_detected!("aes")),
        ("PMULL", std::arch::is_aarch64_feature_detected!("pmull")),
        ("SHA2", std::arch::is_aarch64_feature_detected!("sha2")),
    ];
    let missing: Vec<&str> = features.iter().filter(|(_, here)| !here).map(|(name, _)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(HubError::Cpu { missing: missing.join(", ") }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_where_they_say() {
        let here: Uri = "https://hub/a/b?x=1".parse().unwrap();
        let to = |location| join(&here, location).map(|u| u.to_string());
        assert_eq!(to("https://cdn:8443/f?sig=1").as_deref(), Some("https://cdn:8443/f?sig=1"));
        assert_eq!(to("/api/c").as_deref(), Some("https://hub/api/c"));
        assert_eq!(to("//cdn/c").as_deref(), Some("https://cdn/c"));
        assert_eq!(to("c").as_deref(), Some("https://hub/a/c"));
    }

    #[test]
    fn the_token_is_for_one_origin() {
        let origin = |text: &str| Origin::of(&text.parse().unwrap());
        assert_eq!(origin("https://Hub/x"), origin("https://hub:443/y"));
        for other in ["http://hub/x", "https://hub:444/x", "https://hub.evil/x", "https://cdn/x"] {
            assert_ne!(origin("https://hub/x"), origin(other), "{other}");
        }
        assert_eq!(origin("ftp://hub/x"), None);
        assert!(origin("http://127.0.0.1:80").unwrap().is_loopback() && origin("http://[::1]").unwrap().is_loopback());
    }

    #[test]
    fn small_things_are_read_right() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        assert_eq!(content_range("bytes */10"), None);
        assert_eq!(encode("refs/pr/1 é"), "refs%2Fpr%2F1%20%C3%A9");
        assert_eq!(as_sha256("\"abc\""), None);
        assert!(as_sha256(&format!("\"{}\"", "Ab".repeat(32))).is_some_and(|s| s.starts_with("ab")));
    }
}
