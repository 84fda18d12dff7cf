//! One client process of the contention test: acquires a lease again and again, proves each time
//! that it is the only holder, holds it for up to 20 ms, and releases it.
//!
//! Arguments: RUN_DIR PATH OFFSET PROOF_DIR LABEL SECONDS. Ends with status 0 and a line
//! `granted=N refused=N`, or with a panic that says what went wrong.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use sanlock_conformance::contention::version_log;
use sanlock_conformance::dice::Dice;
use sanlock_conformance::{Connection, Resource};

/// Longest time a lease is held, exclusive.
const HOLD_MS: u64 = 20;
/// Longest pause after a refusal, exclusive.
const PAUSE_MS: u64 = 10;
/// Longest wait for one reply: an acquire may meet several busy ballots.
const REPLY_LIMIT: Duration = Duration::from_secs(45);

/// Refusals that contention causes: being released on this host, being acquired on it, held on it,
/// held by another live host, lost the race (socket-protocol.md 7.7).
const REFUSALS: [i32; 6] = [-11, -16, -17, -243, -244, -245];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [run_dir, path, offset, proof_dir, label, seconds] = args.as_slice() else {
        panic!("usage: contender RUN_DIR PATH OFFSET PROOF_DIR LABEL SECONDS");
    };
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text:?} is not a number"));
    let resource = Resource::new("LS", "R1", path, number(offset));
    let proof = Proof { dir: PathBuf::from(proof_dir), label: label.clone() };
    let mut dice = Dice::new(label, 0);

    let mut connection =
        Connection::open(Path::new(run_dir)).unwrap_or_else(|error| panic!("{run_dir}: {error}"));
    connection.set_limit(REPLY_LIMIT);
    connection.register();
    let (mut granted, mut refused) = (0_u64, 0_u64);
    let end = Instant::now() + Duration::from_secs(number(seconds));
    while Instant::now() < end {
        let result = connection.acquire_one(&resource);
        if result != 0 {
            assert!(REFUSALS.contains(&result), "{label}: acquire gave {result}");
            refused += 1;
            dice.pause(PAUSE_MS);
            continue;
        }
        granted += 1;
        let alone = proof.begin();
        proof.log(lver_held(&mut connection));
        dice.pause(HOLD_MS);
        proof.end(alone);
        let released = connection.release_one(&resource);
        assert_eq!(released, 0, "{label}: release");
        // Whoever asks again at once is there before all that were refused, and has it again: shares would tell of luck only.
        dice.pause(PAUSE_MS);
    }
    println!("granted={granted} refused={refused}");
}

/// The lease version as the daemon lists it: the last field.
fn lver_held(connection: &mut Connection) -> u64 {
    let held = connection.inquire(None);
    assert_eq!((held.result, held.count), (0, 1), "inquired while holding one lease: {held:?}");
    let last = held.state.rsplit(':').next().and_then(|lver| lver.parse().ok());
    last.unwrap_or_else(|| panic!("no lease version in {held:?}"))
}

/// Evidence, independent of the lock manager, that nobody else holds the lease.
struct Proof {
    dir: PathBuf,
    label: String,
}

impl Proof {
    /// Takes both marks. Either of them being taken already is a double owner.
    fn begin(&self) -> Flock<File> {
        let lock = self.open(&self.dir.join("lock"));
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .unwrap_or_else(|(_, error)| panic!("DOUBLE OWNER: {} cannot lock: {error}", self.label));
        let mark = self.dir.join("owner");
        match File::create_new(&mark) {
            Ok(mut file) => {
                let written = file.write_all(self.label.as_bytes());
                written.unwrap_or_else(|error| panic!("{}: {error}", mark.display()));
            }
            Err(error) => {
                let owner = fs::read_to_string(&mark).unwrap_or_default();
                panic!("DOUBLE OWNER: {} meets {owner:?}: {error}", self.label);
            }
        }
        lock
    }

    /// Appends the lease version to the common log; it must be larger than the last one.
    fn log(&self, lver: u64) {
        let path = version_log(&self.dir);
        let mut file = self.open(&path);
        let mut text = String::new();
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
        read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let last = text.lines().last().unwrap_or("0 nobody");
        let before = last.split(' ').next().and_then(|word| word.parse::<u64>().ok());
        assert!(
            before.is_some_and(|before| before < lver),
            "DOUBLE OWNER: {}: version {lver} after {last:?}",
            self.label
        );
        let written = file.write_all(format!("{lver} {}\n", self.label).as_bytes());
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Gives both marks back, before the release.
    fn end(&self, lock: Flock<File>) {
        let mark = self.dir.join("owner");
        let owner = fs::read_to_string(&mark).unwrap_or_default();
        assert_eq!(owner, self.label, "DOUBLE OWNER: the mark was replaced");
        fs::remove_file(&mark).unwrap_or_else(|error| panic!("{}: {error}", mark.display()));
        drop(lock);
    }

    fn open(&self, path: &Path) -> File {
        let file = File::options().read(true).append(true).create(true).open(path);
        file.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
