//! Every target over its committed corpus, and over mutations of it that are the same in every run.
//!
//! A failure prints the command that repeats it. `FUZZ_MUTATIONS=n` changes the number of mutations of each target.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sanlock_fuzz::TARGETS;
use std::fs;
use std::panic;
use std::path::PathBuf;
use std::thread;

/// Mutations of a target, spread over its files.
const MUTATIONS: usize = 2000;
/// Bytes of the largest committed input: what is larger belongs into a structure.
const INPUT_BYTES_MAX: usize = 32 * 1024;
/// Files of one target.
const FILES_MAX: usize = 400;

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap()
    }
}

/// One to eight changes: bits, bytes, numbers, cuts, repetitions, and pieces of another input.
fn mutated(dice: &mut Dice, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=dice.below(8) {
        let at = dice.below(bytes.len() + 1);
        match dice.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            1 if at < bytes.len() => bytes[at] = dice.next().to_le_bytes()[0],
            2 => {
                let number = [u64::MAX, 0, 1, 1 << 31, 1 << 63, dice.next()][dice.below(6)].to_le_bytes();
                for (to, from) in bytes.iter_mut().skip(at).take(1 << dice.below(4)).zip(number) {
                    *to = from;
                }
            }
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..(at + 1 + dice.below(16)).min(bytes.len()))),
            5 => {
                let piece = bytes[at..(at + 1 + dice.below(64)).min(bytes.len())].to_vec();
                let to = dice.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            _ => {
                let from = dice.below(other.len() + 1);
                let piece = other[from..(from + 1 + dice.below(256)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn check(target: &str, what: &str, input: &[u8]) {
    let input_again = input.to_vec();
    let name = target.to_owned();
    if panic::catch_unwind(move || sanlock_fuzz::run(&name, &input_again)).is_err() {
        let path = std::env::temp_dir().join(format!("sanlock-fuzz-{target}"));
        fs::write(&path, input).unwrap();
        panic!(
            "{target}, {what}: repeat with `cargo run -p sanlock-fuzz --example once -- {target} {}`",
            path.display()
        );
    }
}

fn replay(target: &'static str) {
    let files = corpus(target);
    assert!(!files.is_empty() && files.len() <= FILES_MAX, "{target}: {} files", files.len());
    for (file, input) in &files {
        assert!(input.len() <= INPUT_BYTES_MAX, "{target}/{file} has {} bytes", input.len());
        check(target, file, input);
    }
    let wanted = std::env::var("FUZZ_MUTATIONS").map_or(MUTATIONS, |text| text.parse().unwrap());
    let mut dice = Dice(7);
    for n in 0..wanted {
        let (file, input) = &files[n % files.len()];
        let (_, other) = &files[dice.below(files.len())];
        let input = mutated(&mut dice, input, other);
        check(target, &format!("mutation {n} of {file}"), &input);
    }
}

#[test]
fn no_input_of_the_corpora_and_no_mutation_of_one_is_a_finding() {
    let runs: Vec<_> = TARGETS.iter().map(|(name, _)| thread::spawn(|| replay(name))).collect();
    let failed = runs.into_iter().filter_map(|run| run.join().err()).count();
    assert_eq!(failed, 0, "targets with findings");
}

#[test]
fn every_target_has_a_program_a_corpus_and_a_place_in_the_run() {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(here.join("cargo-fuzz/Cargo.toml")).unwrap();
    let page = fs::read_to_string(here.join("../docs/proof/fuzzing.md")).unwrap();
    let mut folders: Vec<String> = fs::read_dir(here.join("corpus"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    let mut names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    for name in &names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
        let program = fs::read_to_string(here.join(format!("cargo-fuzz/fuzz_targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("run(\"{name}\", data)")), "{name}");
    }
    names.sort_unstable();
    assert_eq!(folders, names);
}
