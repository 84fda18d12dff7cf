//! Resource indexes: the same cases on the original and on ours, compared by result, text and bytes on disk (socket-protocol.md
//! 7.33, command-line.md 7.22, disk-format.md 8).

mod actions;
mod commands;
mod shared;

use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Host, Output, Program, Storage, StorageKind};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Area of the storage at which the index begins; its lease is in the next, its resources follow.
const INDEX_AREA: u64 = 1;

/// One program on storage of its own.
struct Side {
    host: Host,
    storage: Storage,
}

impl Side {
    /// With the lockspace formatted and joined; `None` when such storage is not to be had.
    fn joined(program: Program, kind: StorageKind) -> Option<Self> {
        let storage = Storage::new(kind)?;
        let host = Host::start(program, "host1");
        host.init(&storage, 0);
        host.join(&storage, 1);
        Some(Self { host, storage })
    }

    /// Both programs with storage of this kind, the original first.
    fn both(kind: StorageKind) -> Option<[Self; 2]> {
        if !Program::both_available() {
            return None;
        }
        Some([Self::joined(Program::Reference, kind)?, Self::joined(Program::Ours, kind)?])
    }

    /// Offset of the index.
    fn base(&self) -> u64 {
        self.storage.offset(INDEX_AREA)
    }

    /// Offset of the area of an entry.
    fn area(&self, slot: u64) -> u64 {
        self.base() + (2 + slot) * self.storage.kind().align_size()
    }

    /// RINDEX argument.
    fn index(&self) -> String {
        format!("{LOCKSPACE}:{}:{}", self.storage.path(), self.base())
    }

    /// Runs the command line. In an argument `INDEX` is the index, `PATH` the path of the storage, and `AREA<n>` the offset of
    /// the area of entry n.
    fn run(&self, line: &str) -> Output {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| {
                let mut word = word.replace("INDEX", &self.index()).replace("PATH", self.storage.path());
                for slot in 0..10 {
                    word = word.replace(&format!("AREA{slot}"), &self.area(slot).to_string());
                }
                word
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.host.client(&words)
    }

    /// What scripts see of a run: standard output and exit status.
    fn seen(&self, line: &str) -> (String, i32) {
        let output = self.run(line);
        (output.stdout.replace(self.storage.path(), "PATH"), output.code)
    }

    fn bytes(&self, offset: u64, length: u64) -> Vec<u8> {
        let file = File::open(self.storage.path()).unwrap_or_else(|error| panic!("{error}"));
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_else(|error| panic!("{error}"))];
        file.read_exact_at(&mut bytes, offset).unwrap_or_else(|error| panic!("reading at {offset}: {error}"));
        bytes
    }

    /// An area without what cannot be the same twice: times with the checksums over them, and the bytes of the request record
    /// that the original leaves as its memory was.
    fn masked(&self, offset: u64) -> Vec<u8> {
        let mut bytes = self.bytes(offset, self.storage.kind().align_size());
        bytes[192..200].fill(0);
        let sector = usize::try_from(self.storage.kind().sector_size()).unwrap_or(usize::MAX);
        bytes[sector + 20..sector + 24].fill(0);
        bytes
    }

    fn index_area(&self) -> Vec<u8> {
        self.bytes(self.base(), self.storage.kind().align_size())
    }

    /// The internal lease's leader up to its timestamp: names, sizes, version, last owner. Then whether it is free.
    fn lease(&self) -> (Vec<u8>, bool) {
        let leader = self.bytes(self.base() + self.storage.kind().align_size(), 4096);
        (leader[..152].to_vec(), leader[152..160] == [0; 8])
    }
}

/// Both sides must agree.
#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(case: &str, sides: &[Side; 2], look: impl Fn(&Side) -> T) -> T {
    let [reference, ours] = sides.each_ref().map(look);
    assert_eq!(ours, reference, "{case}: ours and the original's");
    ours
}

/// Both sides must agree, too long to be shown.
#[track_caller]
fn same_bytes(case: &str, sides: &[Side; 2], look: impl Fn(&Side) -> Vec<u8>) {
    let [reference, ours] = sides.each_ref().map(look);
    if ours != reference {
        let at = ours.iter().zip(&reference).position(|(a, b)| a != b);
        panic!("{case}: {} and {} bytes, which differ at byte {at:?}", ours.len(), reference.len());
    }
}
