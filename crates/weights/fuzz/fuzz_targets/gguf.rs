//! Whatever the bytes: no panic, accepted tensors lie inside the file and decode, and metadata can be walked.
#![no_main]

use lattice_weights::gguf::{Value, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(contents) = parse(file) else { return };
    for (key, value) in contents.metadata.iter() {
        assert!(!value.to_string().is_empty(), "{key}");
        match value {
            Value::Strings(strings) => assert_eq!(strings.iter().count(), strings.len()),
            Value::Numbers(numbers) => assert_eq!(numbers.iter().count(), numbers.len()),
            _ => {}
        }
    }
    for tensor in &contents.tensors {
        let bytes = &file[tensor.range.clone()];
        let elements = tensor.shape.iter().product();
        assert_eq!(tensor.format.tensor_bytes(&tensor.shape), Some(bytes.len()));
        let _ = tensor.format.decode(&tensor.name, bytes, &mut vec![0.0; elements]);
    }
});
