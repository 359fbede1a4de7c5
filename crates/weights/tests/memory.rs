//! Does a released tensor leave memory, and is it still there afterwards? Linux says so in `/proc`.
#![cfg(target_os = "linux")]

use lattice_weights::{Checkpoint, Format, Tensor, write_safetensors};

/// Resident bytes of mapped files, on disk or in a file system in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| -> Option<usize> {
        status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok())
    };
    ["RssFile:", "RssShmem:"].into_iter().filter_map(kib).sum::<usize>() * 1024
}

#[test]
fn a_checkpoint_is_resident_only_as_far_as_it_was_touched_and_not_released() {
    const SIZE: usize = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.safetensors");
    let tensor = |name| Tensor::from_bytes(name, vec![SIZE], Format::U8, vec![7; SIZE]).unwrap();
    write_safetensors(&file, &[tensor("a"), tensor("b")]).unwrap();

    let before = resident();
    let checkpoint = Checkpoint::open(&file).unwrap();
    assert!(resident() < before + SIZE / 4, "opening reads the header alone");
    let (a, b) = (checkpoint.get("a").unwrap(), checkpoint.get("b").unwrap());
    let sum = |t: &Tensor| t.bytes().iter().map(|b| u64::from(*b)).sum::<u64>();
    assert_eq!(sum(&a) + sum(&b), 14 * SIZE as u64);
    let touched = resident();
    assert!(touched > before + SIZE * 7 / 4, "{before} {touched}");
    a.release();
    assert!(resident() < touched - SIZE * 3 / 4, "the released half goes, the other stays");
    assert!(resident() > touched - SIZE * 5 / 4);
    assert_eq!(sum(&a), 7 * SIZE as u64);
}
