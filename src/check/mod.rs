//! `sanlock check`: is this host, and this storage, fit for leases (docs/guide/check.md)?
//!
//! Nothing is changed: on a directory a scratch file is made and removed, everything else is only read. What is read of the system is
//! read below a directory that may be another one than `/` ([`root`]).

mod device;
mod finding;
mod host;
mod latency;
mod leases;
mod mount;
mod multipath;
mod options;
mod rate;
mod root;
mod storage;

use crate::cli::doctor::{CheckArgs, UNKNOWN};
use crate::direct::storage::Storage;
use crate::fsck::scan::Place;
use crate::json;
use crate::output::{FAILURE, SUCCESS, note, print};
use finding::{Findings, Level};
use latency::Samples;
use leases::Watched;
use mount::Mount;
use root::Root;
use sanlock_daemon::config::{CONFIG_PATH, Config};
use sanlock_lease::timing::IoTimeout;
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use storage::{Scratch, Target};

const ACTION: &str = "check";
/// Exit status: something does not work, or does not protect.
const PROBLEMS: u8 = 2;

/// Carries out the command and returns the exit status.
pub(crate) fn run(args: &CheckArgs) -> u8 {
    if let Err(error) = std::fs::read_dir(&args.sysroot) {
        note(ACTION, &format!("--sysroot {}: {error}", args.sysroot.display()));
        return UNKNOWN;
    }
    let root = Root::new(&args.sysroot);
    let (mut found, mut measured) = (Findings::default(), None);
    let mut config = Config::default();
    match root.text(CONFIG_PATH) {
        Some(text) => config.apply_file(text.as_bytes()),
        None if root.is_there(CONFIG_PATH) => found.warning(
            "configuration-unread",
            format!("{CONFIG_PATH} cannot be read"),
            "what is said here goes by the defaults; if root cannot read it either, the daemon does not start",
            "check as root, and make it a file that root can read",
        ),
        None => {}
    }
    let io_timeout = match args.io_timeout.map(IoTimeout::new) {
        None => config.io_timeout,
        Some(Ok(io_timeout)) => io_timeout,
        Some(Err(error)) => {
            note(ACTION, &error.to_string());
            return UNKNOWN;
        }
    };
    let check = Check { root, config, io_timeout, time: Duration::from_secs(args.seconds.into()) };
    host::judge(&check.root, &check.config, io_timeout, &mut found);
    if let Some(place) = &args.place {
        match Place::parse(place.as_bytes(), false) {
            Ok(place) => measured = check.place(&place, &mut found),
            Err(error) => {
                note(ACTION, &format!("{}: {error}", place.to_string_lossy()));
                return UNKNOWN;
            }
        }
    }
    found.0.sort_by_key(|f| std::cmp::Reverse(f.level));
    if args.json {
        json::print_document(ACTION, &Report::of(&found, measured.as_ref()));
    } else {
        print(measured.map_or_else(String::new, |samples| samples.text()) + &text(&found));
    }
    match found.worst() {
        None | Some(Level::Note) => SUCCESS,
        Some(Level::Warning) => FAILURE,
        Some(Level::Problem) => PROBLEMS,
    }
}

fn text(found: &Findings) -> String {
    let mut out = String::new();
    for f in &found.0 {
        let word = f.level.word();
        out.push_str(&format!(
            "\n{word} {}\n  seen  {}\n  why   {}\n  do    {}\n",
            f.code, f.seen, f.why, f.advice
        ));
    }
    let count = |level| found.count(level);
    let (problems, warnings, notes) = (count(Level::Problem), count(Level::Warning), count(Level::Note));
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(&match (problems, warnings) {
        (0, 0) => format!("nothing is wrong ({notes} note(s))\n"),
        _ => format!("{problems} problem(s), {warnings} warning(s), {notes} note(s)\n"),
    });
    out
}

/// What `--json` shows (docs/json.md).
#[derive(Debug, Serialize)]
struct Report<'a> {
    problems: usize,
    warnings: usize,
    notes: usize,
    measured: Option<latency::Summary>,
    findings: &'a [finding::Finding],
}

impl<'a> Report<'a> {
    fn of(found: &'a Findings, measured: Option<&Samples>) -> Self {
        Self {
            problems: found.count(Level::Problem),
            warnings: found.count(Level::Warning),
            notes: found.count(Level::Note),
            measured: measured.map(Samples::summary),
            findings: &found.0,
        }
    }
}

/// What is checked against what.
struct Check {
    root: Root,
    config: Config,
    io_timeout: IoTimeout,
    /// How long I/O is measured.
    time: Duration,
}

impl Check {
    fn place(&self, place: &Place, found: &mut Findings) -> Option<Samples> {
        let given = Path::new(OsStr::from_bytes(&place.path));
        let path = given.canonicalize().unwrap_or_else(|_| given.to_path_buf());
        let (target, metadata) = storage::target(&path, found)?;
        storage::permissions(&self.root, &self.config, &path, (target, &metadata), found);
        self.beneath(&path, target, &metadata, found);
        let samples = match target {
            Target::Directory => self.scratch(&path, found),
            Target::File | Target::Device => self.leases(&path, place, found),
        }?;
        samples.judge(self.io_timeout, found);
        Some(samples)
    }

    /// What it lies on.
    fn beneath(&self, path: &Path, target: Target, metadata: &std::fs::Metadata, found: &mut Findings) {
        let numbers = if target == Target::Device {
            let device = metadata.rdev();
            Some(format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device)))
        } else {
            let mount = Mount::of(&self.root, path);
            if let Some(mount) = &mount {
                mount.judge(self.io_timeout, found);
            }
            mount.filter(|mount| !mount.is_nfs()).map(|mount| mount.device)
        };
        if let Some(numbers) = numbers {
            let stack = device::Stack::of(&self.root, &numbers);
            stack.judge(&self.root, self.io_timeout, found);
            if target == Target::Device {
                stack.judge_sectors(&self.root, found);
            }
        }
    }

    /// Real lease I/O, on a file of our own.
    fn scratch(&self, dir: &Path, found: &mut Findings) -> Option<Samples> {
        let scratch = match Scratch::create(dir) {
            Ok(scratch) => scratch,
            Err(error) => {
                let seen = format!("no file can be made in {}: {error}", dir.display());
                found.problem(
                    "cannot-create",
                    seen,
                    "nothing can be measured there",
                    "make room, or run this as root",
                );
                return None;
            }
        };
        let mut storage = scratch.open(found)?;
        // It stays usable without a name, and nothing is left of it however this ends.
        drop(scratch);
        self.samples(dir, &mut storage, 0, true, None, found)
    }

    /// Reads only: there may be leases.
    fn leases(&self, path: &Path, place: &Place, found: &mut Findings) -> Option<Samples> {
        let mut storage = storage::open(path, place.offset, found)?;
        if storage.disk().size() == 0 {
            return None;
        }
        let mut watched = leases::judge(place, found);
        self.samples(path, &mut storage, place.offset, false, watched.as_mut(), found)
    }

    fn samples(
        &self,
        path: &Path,
        storage: &mut Storage,
        offset: u64,
        write: bool,
        mut watched: Option<&mut Watched>,
        found: &mut Findings,
    ) -> Option<Samples> {
        let samples = Samples::take(storage, offset, write, self.time, |storage| match &mut watched {
            Some(watched) => watched.look(storage),
            None => Ok(()),
        });
        if let Some(watched) = watched {
            watched.judge(found);
        }
        samples
            .map_err(|error| {
                found.problem(
                    "io-fails",
                    format!("{}: {error}", path.display()),
                    "renewals fail in the same way",
                    "look at the kernel's messages (dmesg)",
                );
            })
            .ok()
    }
}
