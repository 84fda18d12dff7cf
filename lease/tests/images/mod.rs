//! The recorded areas and what is known of them.

use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;

/// Areas of a record index, of a lockspace and of a resource are at most this long, several of them in one file.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/disk")
}

/// The bytes of a recorded file, named without `.img.gz`.
pub(crate) fn load(name: &str) -> Vec<u8> {
    let file = std::fs::File::open(folder().join(format!("{name}.img.gz"))).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).take(IMAGE_BYTES_MAX).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Every recorded file: its name without `.img.gz`, and what it holds.
#[allow(dead_code, reason = "not every test looks at all of them")]
pub(crate) fn expected() -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    let Value::Object(files) = serde_json::from_str(&text).unwrap() else { panic!("not an object") };
    files.into_iter().map(|(name, v)| (name.strip_suffix(".img.gz").unwrap().to_owned(), v)).collect()
}
