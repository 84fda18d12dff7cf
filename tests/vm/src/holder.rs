//! The guest's side: a program that takes the lease and, while it has it, keeps writing.
//!
//! It runs in the guests as `sanlock-vm holder HOST [ignore-term] [stuck] [killpath] [second] [persistent]` and reports on standard output, which
//! is the guest's console. It asks for the lease again and again until it gets it. Then it stamps the stamp disk until it
//! dies; it never looks whether it still has the lease, as a virtual machine's emulator does not either.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use sanlock_blockio::AlignedBuf;
use sanlock_client::wire::flags::{AcquireFlags, KillpathFlags, ResourceFlags};
use sanlock_client::wire::{Disk, Name, Resource, ResourceSpec};
use sanlock_client::{Client, ClientError};
use zerocopy::IntoBytes;

use crate::layout::{LEASE_DISK, RESOURCE_OFFSET, SECOND_LEASE_DISK, STAMP_BYTES, STAMP_DISK, Stamp};

/// Between two stamps.
const STAMP_EVERY: Duration = Duration::from_millis(100);
/// Between two attempts to get the lease.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The program that the guest's image has at this place: it creates [`STOP_FILE`].
pub(crate) const KILLPATH: &str = "/bin/graceful-stop";
/// The holder ends by itself when this appears.
pub(crate) const STOP_FILE: &str = "/run/holder-stop";

/// Entry of the guest program. Returns the exit status.
pub(crate) fn main(args: &[String]) -> u8 {
    let Some(host) = args.first().and_then(|word| word.parse().ok()) else {
        say("usage: sanlock-vm holder HOST [ignore-term] [stuck] [killpath] [second] [persistent]");
        return 2;
    };
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let lease = if has("second") { ("LS2", SECOND_LEASE_DISK) } else { ("LS", LEASE_DISK) };
    let flags = if has("persistent") { ResourceFlags::PERSISTENT } else { ResourceFlags::empty() };
    match hold(host, lease, flags, has("ignore-term"), has("stuck"), has("killpath")) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("failed: {error}"));
            1
        }
    }
}

/// One write per line, so that lines of several programs do not mix.
fn say(text: &str) {
    let line = format!("holder: {text}\n");
    // Nobody to tell if the console is gone.
    let _ = std::io::stdout().write_all(line.as_bytes());
}

fn hold(
    host: u64,
    (lockspace, path): (&str, &str),
    flags: ResourceFlags,
    ignore_term: bool,
    stuck: bool,
    killpath: bool,
) -> Result<(), String> {
    if ignore_term {
        // Blocked is as good as ignored, for every thread started later too.
        let mut term = SigSet::empty();
        term.add(Signal::SIGTERM);
        term.thread_block().map_err(|error| format!("cannot block SIGTERM: {error}"))?;
    }
    let mut process = Client::new().register().map_err(|error| error.to_string())?;
    if killpath {
        let set = process.killpath(KillpathFlags::empty(), KILLPATH, "");
        set.map_err(|error| error.to_string())?;
    }
    let mut resource = Resource::new(name(lockspace)?, name("R1")?);
    resource.flags = flags.bits().into();
    let disk = Disk::new(path, RESOURCE_OFFSET).map_err(|error| error.to_string())?;
    let spec = ResourceSpec::new(resource, vec![disk]).map_err(|error| error.to_string())?;
    let mut last = 0;
    loop {
        match process.acquire(AcquireFlags::empty(), std::slice::from_ref(&spec), None) {
            Ok(()) => break,
            Err(ClientError::Daemon { code, .. }) => {
                if code != last {
                    say(&format!("refused {code}"));
                }
                last = code;
                thread::sleep(ASK_EVERY);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    say("acquired");
    if stuck {
        thread::spawn(move || write_to_lease_disk(host));
    }
    if path != LEASE_DISK {
        // The stamps are those of the first lease.
        loop {
            thread::park();
        }
    }
    let disk = open(STAMP_DISK)?;
    let mut counter = 0;
    while !(killpath && Path::new(STOP_FILE).exists()) {
        counter += 1;
        stamp(&disk, host, counter)?;
        thread::sleep(STAMP_EVERY);
    }
    say("stopped by the kill program");
    Ok(())
}

/// Keeps a write to the lease disk going: when the disk hangs, the process cannot die.
fn write_to_lease_disk(host: u64) {
    let disk = match open(LEASE_DISK) {
        Ok(disk) => disk,
        Err(error) => return say(&error),
    };
    let mut counter = 0;
    loop {
        counter += 1;
        // An error is what a cut disk may answer; the next one may succeed.
        let _ = stamp(&disk, host, counter);
        thread::sleep(STAMP_EVERY);
    }
}

fn stamp(disk: &File, host: u64, counter: u64) -> Result<(), String> {
    let mut place = AlignedBuf::zeroed(STAMP_BYTES);
    let stamp = Stamp::new(host, counter);
    let bytes = stamp.as_bytes();
    place[..bytes.len()].copy_from_slice(bytes);
    let at = usize::try_from(host).map(Stamp::offset).map_err(|error| error.to_string())?;
    disk.write_all_at(&place, at).map_err(|error| format!("stamp at {at}: {error}"))
}

fn open(path: &str) -> Result<File, String> {
    let file = File::options().write(true).custom_flags(nix::libc::O_DIRECT | nix::libc::O_SYNC).open(path);
    file.map_err(|error| format!("{path}: {error}"))
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}
