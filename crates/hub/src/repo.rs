//! How does a model come from the Hub? Its repository is listed, the files that matter are chosen, small ones first, and
//! each is downloaded with resume and verified: against the catalog's checksum, else against the Hub's own.

use crate::cache::{self, INDEX, MAX_JSON, Record, Recorded, Target};
use crate::disk::{self, Expected, Incoming};
use crate::http::{Client, encode, is_sha256};
use crate::{Event, HubError, Progress, Source, names};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

const MAX_LISTING: u64 = 32 << 20;
/// A repository whose root has more configuration than this is not a model's.
const MAX_COMPANIONS: usize = 256;
/// No file of weights is longer.
const MAX_WEIGHTS: u64 = 1 << 40;
/// No other file is.
const MAX_COMPANION: u64 = 256 << 20;
/// A transfer that got on by this much counts its failures anew.
const GOT_ON: u64 = 1 << 20;

/// A repository at one commit.
#[derive(Debug, Default)]
struct Listing {
    commit: Option<String>,
    files: BTreeMap<String, Expected>,
}

/// What to fetch: names, each with whether it must be there.
type Wanted = BTreeMap<String, bool>;

/// Fetches what `target` needs into its folder.
pub(crate) fn fetch(
    client: &Client,
    target: &Target,
    source: &Source,
    progress: &mut dyn Progress,
) -> Result<Record, HubError> {
    let mut fetch = Fetch { client, target, source, listing: Listing::default(), listed: true, done: BTreeMap::new() };
    match list(client, target, progress) {
        Ok(listing) => fetch.listing = listing,
        // A plain file server has no listing; the catalog knows the files.
        Err(HubError::NotFound { .. }) if target.entry.is_some() => fetch.listed = false,
        Err(error) => return Err(error),
    }
    // What follows from files is asked of them when they are here; weights come last, so that a folder without our
    // record is never taken for whole too early.
    fetch.all(&fetch.first()?, progress)?;
    fetch.all(&fetch.modules()?, progress)?;
    fetch.all(&fetch.weights()?, progress)?;
    Ok(Record {
        repo: target.repo.id.clone(),
        revision: target.repo.revision.clone(),
        commit: fetch.listing.commit,
        source: client.endpoint.clone(),
        files: fetch.done,
    })
}

struct Fetch<'a> {
    client: &'a Client,
    target: &'a Target,
    source: &'a Source,
    listing: Listing,
    /// Whether the repository told its files.
    listed: bool,
    done: BTreeMap<String, Recorded>,
}

impl Fetch<'_> {
    /// The files beside the weights.
    fn first(&self) -> Result<Wanted, HubError> {
        if self.target.repo.file.is_some() {
            return Ok(Wanted::new());
        }
        if let Some(entry) = self.target.entry {
            return Ok(entry
                .files
                .iter()
                .filter(|f| !is_tensors(f.path))
                .map(|f| (f.path.to_owned(), f.required))
                .collect());
        }
        self.weights_at_root()?;
        let wanted: Wanted = self.listing.files.keys().filter(|n| is_companion(n)).map(|n| (n.clone(), true)).collect();
        if wanted.len() > MAX_COMPANIONS {
            let problem =
                format!("the repository has {} configuration files, expected at most {MAX_COMPANIONS}", wanted.len());
            return Err(HubError::Protocol { url: self.page(), problem });
        }
        Ok(wanted)
    }

    /// The files in the folders that `modules.json` names.
    fn modules(&self) -> Result<Wanted, HubError> {
        #[derive(Deserialize)]
        struct Module {
            path: String,
        }
        if self.target.entry.is_some() || !self.done.contains_key("modules.json") {
            return Ok(Wanted::new());
        }
        let path = self.target.folder.join("modules.json");
        let bytes = disk::read_bounded(&path, MAX_JSON).map_err(|e| HubError::io("read", &path, e))?;
        let modules: Vec<Module> = serde_json::from_slice(&bytes)
            .map_err(|e| HubError::io("understand", &path, io::Error::new(io::ErrorKind::InvalidData, e)))?;
        let folders: BTreeSet<&str> = modules.iter().map(|m| m.path.as_str()).filter(|p| !p.is_empty()).collect();
        for folder in &folders {
            check(folder, "modules.json")?;
        }
        let inside = |name: &str| {
            name.rsplit_once('/').is_some_and(|(folder, file)| {
                folders.contains(folder) && (is_companion(file) || file == "model.safetensors")
            })
        };
        Ok(self.listing.files.keys().filter(|n| inside(n)).take(MAX_COMPANIONS).map(|n| (n.clone(), true)).collect())
    }

    /// The weights themselves.
    fn weights(&self) -> Result<Wanted, HubError> {
        let names = match (&self.target.repo.file, self.target.entry) {
            (Some(file), _) => vec![file.clone()],
            (None, Some(entry)) => entry.files.iter().map(|f| f.path.to_owned()).filter(|n| is_tensors(n)).collect(),
            (None, None) => self.weights_at_root()?,
        };
        let mut wanted: Wanted = names.into_iter().map(|n| (n, true)).collect();
        if wanted.is_empty() || wanted.remove(INDEX).is_some() {
            wanted.extend(cache::shards(&self.target.folder)?.into_iter().map(|n| (n, true)));
        }
        Ok(wanted)
    }

    /// Which weights a repository that is not in the catalog offers: one file, or [`INDEX`] for the shards it names.
    fn weights_at_root(&self) -> Result<Vec<String>, HubError> {
        for name in ["model.safetensors", INDEX] {
            if self.listing.files.contains_key(name) {
                return Ok(vec![name.into()]);
            }
        }
        let gguf = |n: &&String| n.ends_with(".gguf") && !n.rsplit('/').next().unwrap_or(n).starts_with("mmproj");
        let ggufs: Vec<String> = self.listing.files.keys().filter(gguf).cloned().collect();
        let repo = self.target.repo.id.clone();
        match ggufs.len() {
            0 => {
                let pickled = |n: &String| [".bin", ".pt", ".pth", ".ckpt"].iter().any(|end| n.ends_with(end));
                Err(HubError::NoWeights { repo, pickle: self.listing.files.keys().any(pickled) })
            }
            1 => Ok(ggufs),
            _ => Err(HubError::SeveralGguf { repo, choices: ggufs.into_iter().take(100).collect() }),
        }
    }

    fn page(&self) -> String {
        format!("{}/{}", self.client.endpoint, self.target.repo.id)
    }

    /// Fetches files, after seeing that there is room for them.
    fn all(&mut self, wanted: &Wanted, progress: &mut dyn Progress) -> Result<(), HubError> {
        for name in wanted.keys() {
            check(name, &self.target.repo.id)?;
        }
        let need = wanted.keys().filter_map(|n| self.listing.files.get(n)?.bytes).fold(0, u64::saturating_add);
        let here = wanted.keys().map(|n| format!("{n}.part"));
        let here =
            here.filter_map(|n| cache::size(&names::inside(&self.target.folder, &n))).fold(0, u64::saturating_add);
        disk::check_space(&self.target.folder, need.saturating_sub(here))?;
        for (name, required) in wanted {
            if self.listed && !self.listing.files.contains_key(name) {
                match required {
                    true => return Err(HubError::NotFound { url: self.url(name) }),
                    false => continue,
                }
            }
            match self.one(name, progress) {
                Err(HubError::NotFound { .. }) if !required => {}
                Err(error) => return Err(error),
                Ok(recorded) => {
                    self.done.insert(name.clone(), recorded);
                }
            }
        }
        Ok(())
    }

    fn url(&self, name: &str) -> String {
        let revision = self.listing.commit.as_deref().unwrap_or(&self.target.repo.revision);
        let path: Vec<String> = name.split('/').map(encode).collect();
        format!("{}/{}/resolve/{}/{}", self.client.endpoint, self.target.repo.id, encode(revision), path.join("/"))
    }

    /// One file: what is here and verified stays, else it is downloaded.
    fn one(&self, name: &str, progress: &mut dyn Progress) -> Result<Recorded, HubError> {
        let mut expected = self.listing.files.get(name).cloned().unwrap_or_default();
        if let Some(pin) = self.target.pinned(name) {
            if let Some(other) = expected.sha256.as_ref().filter(|told| *told != pin) {
                let origin = self.source.to_string();
                return Err(HubError::Checksum { file: name.into(), origin, expected: pin.into(), got: other.clone() });
            }
            expected.sha256 = Some(pin.into());
        }
        let path = names::inside(&self.target.folder, name);
        if let (Some(sha256), Some(bytes)) = (&expected.sha256, cache::size(&path))
            && expected.bytes.is_none_or(|b| b == bytes)
            && disk::sha256(&path)? == *sha256
        {
            return Ok(Recorded { bytes, sha256: expected.sha256 });
        }
        let mut fresh = false;
        loop {
            let mut incoming = Incoming::open(&self.target.folder, name)?;
            let resumed = incoming.done > 0;
            self.client.persist(name, true, progress, |progress| {
                let before = incoming.done;
                let result = self.transfer(&mut incoming, name, &mut expected, progress);
                (result, incoming.done > before.saturating_add(GOT_ON))
            })?;
            match incoming.finish(&expected, self.source) {
                // What an earlier run left may have been damaged.
                Err(HubError::Checksum { .. } | HubError::Size { .. }) if resumed && !fresh => fresh = true,
                Err(error) => return Err(error),
                Ok(bytes) => {
                    progress.on(&Event::Finished { file: name, bytes });
                    return Ok(Recorded { bytes, sha256: expected.sha256 });
                }
            }
        }
    }

    /// One request, and what comes of it into `incoming`.
    fn transfer(
        &self,
        incoming: &mut Incoming<'_>,
        name: &str,
        expected: &mut Expected,
        progress: &mut dyn Progress,
    ) -> Result<(), HubError> {
        if incoming.done > 0 && expected.bytes == Some(incoming.done) {
            return Ok(());
        }
        if expected.bytes.is_some_and(|b| incoming.done > b) || incoming.etag.is_none() {
            incoming.restart(None)?;
        }
        let url = self.url(name);
        let broken = |problem: String| HubError::Network { url: url.clone(), problem };
        let etag = incoming.etag.clone();
        let range = etag.as_deref().filter(|_| incoming.done > 0).map(|etag| (incoming.done, etag));
        let mut answer = self.client.get(&url, range)?;
        let total = match answer.status {
            206 if answer.range.is_some_and(|(start, _)| start == incoming.done && range.is_some())
                && answer.etag.as_ref().is_none_or(|e| incoming.etag.as_ref() == Some(e)) =>
            {
                answer.range.and_then(|(_, total)| total)
            }
            200 => {
                incoming.restart(answer.etag.as_deref())?;
                answer.length
            }
            _ => {
                incoming.restart(None)?;
                return Err(broken("the server has not the part that was asked for".into()));
            }
        };
        if expected.sha256.is_none() {
            expected.sha256 = answer.sha256;
        }
        if let (Some(want), Some(got)) = (expected.bytes, total)
            && want != got
        {
            incoming.discard();
            return Err(HubError::Size { file: name.into(), origin: self.source.to_string(), expected: want, got });
        }
        let total = expected.bytes.or(total);
        let limit = if names::is_weights(name) { MAX_WEIGHTS } else { MAX_COMPANION };
        if total.is_some_and(|t| t > limit) {
            incoming.discard();
            return Err(HubError::TooLarge { file: name.into(), limit });
        }
        disk::check_space(&self.target.folder, total.unwrap_or(0).saturating_sub(incoming.done))?;
        progress.on(&Event::Started { file: name, done: incoming.done, total });
        let read = incoming.fill(&mut answer.body, total.unwrap_or(limit), total, progress)?;
        read.map_err(|e| broken(format!("it broke off after {} bytes: {e}", incoming.done)))?;
        match total {
            Some(total) if incoming.done < total => {
                Err(broken(format!("it broke off after {} of {total} bytes", incoming.done)))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a name at the root is configuration or tokenizer of a model in safetensors.
fn is_companion(name: &str) -> bool {
    let json = name.ends_with(".json") && !name.ends_with(".index.json") || name == INDEX;
    !name.contains('/')
        && (json
            || name == "vocab.txt"
            || name == "merges.txt"
            || name.ends_with(".model")
            || name.ends_with(".tiktoken")
            || name.ends_with(".jinja"))
}

fn is_tensors(name: &str) -> bool {
    name.ends_with(".safetensors")
}

fn check(name: &str, origin: &str) -> Result<(), HubError> {
    names::check_path(name).map_err(|problem| HubError::HostileName {
        origin: origin.to_owned(),
        name: name.chars().take(200).collect(),
        problem,
    })
}

fn list(client: &Client, target: &Target, progress: &mut dyn Progress) -> Result<Listing, HubError> {
    let repo = &target.repo;
    let url = format!("{}/api/models/{}/revision/{}?blobs=true", client.endpoint, repo.id, encode(&repo.revision));
    // A host that cannot be reached is given up at once here, for the next source's sake.
    client.persist(&repo.id, false, progress, |_| {
        let listing = client.get(&url, None).and_then(|answer| {
            let mut bytes = Vec::new();
            let read = answer.body.take(MAX_LISTING + 1).read_to_end(&mut bytes);
            read.map_err(|e| HubError::Network { url: url.clone(), problem: e.to_string() })?;
            if bytes.len() as u64 > MAX_LISTING {
                return Err(HubError::TooLarge { file: url.clone(), limit: MAX_LISTING });
            }
            parse_listing(&bytes).map_err(|problem| HubError::Protocol { url: url.clone(), problem })
        });
        (listing, false)
    })
}

fn parse_listing(bytes: &[u8]) -> Result<Listing, String> {
    #[derive(Deserialize)]
    struct Model {
        sha: Option<String>,
        siblings: Vec<Sibling>,
    }
    #[derive(Deserialize)]
    struct Sibling {
        rfilename: String,
        size: Option<u64>,
        lfs: Option<Lfs>,
    }
    #[derive(Deserialize)]
    struct Lfs {
        sha256: Option<String>,
    }
    let model: Model =
        serde_json::from_slice(bytes).map_err(|e| format!("the list of files is not understood: {e}"))?;
    let commit = model.sha.filter(|s| (7..=64).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit()));
    let mut files = BTreeMap::new();
    for sibling in model.siblings {
        if sibling.size.is_some_and(|s| s > MAX_WEIGHTS) {
            return Err(format!("{:?} is said to be longer than {MAX_WEIGHTS} bytes", sibling.rfilename));
        }
        let sha256 = sibling.lfs.and_then(|l| l.sha256).filter(|s| is_sha256(s)).map(|s| s.to_ascii_lowercase());
        files.insert(sibling.rfilename, Expected { bytes: sibling.size, sha256 });
    }
    Ok(Listing { commit, files })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn companions_are_what_a_model_reads() {
        for yes in [
            "config.json",
            "tokenizer.json",
            "vocab.txt",
            "merges.txt",
            "sentencepiece.bpe.model",
            INDEX,
            "chat_template.jinja",
        ] {
            assert!(is_companion(yes), "{yes}");
        }
        for no in [
            "README.md",
            "onnx/config.json",
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
            "model.safetensors",
            "train.txt",
        ] {
            assert!(!is_companion(no), "{no}");
        }
    }

    #[test]
    fn a_listing_is_read_and_bounded() {
        let sha = "a".repeat(64);
        let text = format!(
            r#"{{"sha": "0123456789abcdef", "siblings": [{{"rfilename": "a", "size": 3, "lfs": {{"sha256": "{sha}"}}}}, {{"rfilename": "b"}}]}}"#
        );
        let listing = parse_listing(text.as_bytes()).unwrap();
        assert_eq!(listing.commit.as_deref(), Some("0123456789abcdef"));
        assert_eq!((listing.files["a"].bytes, listing.files["a"].sha256.as_ref()), (Some(3), Some(&sha)));
        assert_eq!(listing.files["b"].bytes, None);
        assert!(parse_listing(br#"{"siblings": [{"rfilename": "a", "size": 18446744073709551615}]}"#).is_err());
        assert!(parse_listing(br#"{"siblings": [{"rfilename": "a", "size": -1}]}"#).is_err());
        assert_eq!(parse_listing(br#"{"sha": "../../x", "siblings": []}"#).unwrap().commit, None);
        assert!(parse_listing(b"<html>").unwrap_err().contains("not understood"));
    }

    proptest! {
        #[test]
        fn no_listing_makes_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = parse_listing(&bytes);
        }
    }
}
