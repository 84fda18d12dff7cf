//! Rejoin records (rule R7): what the run directory says of each joined lockspace, so that a daemon that starts anew knows
//! whether processes of the earlier one may still use what it held.
//!
//! Beside them, the generations that joins are about to claim ([`claims`]).
//!
//! One small text file per lockspace and host id. It is replaced as a whole and is on stable storage, its name too, before it
//! is acknowledged. A record that cannot be written is removed: no record means the long wait, a stale one would not.
//!
//! Nobody waits for a run directory that is gone or cannot be written to, for what lies there then vouches for nothing: this daemon
//! trusts a record of its own only if it is the newest one it saved, another daemon of the same boot trusts none of ours, and after a
//! reboot the processes that it lacks are gone too.

pub(crate) mod asking;
mod claims;
mod form;
mod queue;
pub(crate) mod reboot;

use sanlock_sys::thread;
use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asking::Desk;
use claims::Claim;
use form::{seal, unseal};
use queue::{Queue, Queued};
use reboot::Reboots;
use sanlock_lease::delta::Instance;
use sanlock_lease::name::Name;
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::IoTimeout;
use sanlock_manager::LockspaceId;
use sanlock_manager::rejoin::{RejoinEvidence, RejoinRecord};
use sanlock_sys::process;

use crate::global::Global;
use crate::log::Log;

/// First line of a record.
const HEADING: &str = "sanlock rejoin record 4";
/// That of the form before, without place and checksum: of what it says, only the instance counts, which makes a join slower at most.
const HEADING_UNSEALED: &str = "sanlock rejoin record 3";
/// Last line of that form.
const END: &str = "end\n";
/// What follows.
pub(crate) const AFTER_REBOOT: &str = "after a reboot this host waits for its own old lease";
/// Bytes of the largest record that is read: a thousand processes and more.
const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// Stack of the thread that writes.
const STACK: usize = 96 * 1024;
/// Records for the time after a reboot that wait for their disk.
const NOTES_MAX: usize = 1024;
/// Mode of the run directory, as at the start.
pub(crate) const RUN_DIR_MODE: u32 = 0o775;

/// Where the records are.
#[derive(Debug)]
pub(crate) struct Records {
    directory: PathBuf,
    /// This boot, if the system tells: without it no record can be trusted.
    boot: Option<String>,
    /// This life of the daemon.
    daemon: String,
    /// What outlives a reboot, if there is a place for it.
    reboots: Option<Reboots>,
    newest: Mutex<Newest>,
    /// What is to be written.
    orders: Arc<Queue>,
    /// Who reads in the run directory.
    this_boot: Desk<Option<RejoinEvidence>>,
    /// Who reads what outlives a reboot.
    before_boot: Desk<Option<RejoinEvidence>>,
    /// Who reads claims.
    claims: Desk<io::Result<u64>>,
}

/// What this daemon knows of its own records. Locked while one is written or removed.
#[derive(Debug, Default)]
struct Newest {
    /// The newest record of a lockspace and host id, if it is on stable storage: what lies there otherwise is stale.
    saved: HashMap<(Name, u64), String>,
    /// A stale record could not be removed, which was said.
    stuck: bool,
    /// The run directory could not be made anew, which was said.
    missing: bool,
}

impl Records {
    /// The records in this run directory.
    pub(crate) fn new(run_dir: &Path, reboots: Option<Reboots>) -> Self {
        let daemon = uuid::Uuid::new_v4().to_string();
        Self {
            directory: run_dir.to_owned(),
            boot: process::boot_id().ok(),
            daemon,
            reboots,
            newest: Mutex::default(),
            orders: Arc::default(),
            this_boot: Desk::new("sanlock-rejoin", Self::this_boot, |records| &records.this_boot),
            before_boot: Desk::new("sanlock-earlier", Self::before_boot, |records| &records.before_boot),
            claims: Desk::new("sanlock-claims", Self::claimed, |records| &records.claims),
        }
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        // What a thread that panicked left behind is a record less that is trusted, never one more.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, lockspace: &Name, host_id: u64) -> PathBuf {
        self.path_of("rejoin", lockspace, host_id)
    }

    /// Of the file of this kind.
    fn path_of(&self, kind: &str, lockspace: &Name, host_id: u64) -> PathBuf {
        self.directory.join(format!("{kind}-{}-{host_id}", hex(lockspace.as_bytes())))
    }

    /// What the run directory says of an earlier instance of this host in a lockspace; `None` without a record.
    fn this_boot(&self, spec: &LockspaceSpec) -> Option<RejoinEvidence> {
        match read(&self.path(&spec.name, spec.host_id), RECORD_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => Some(RejoinEvidence::Unusable),
            Ok(text) => Some(self.judge(&text, spec).unwrap_or(RejoinEvidence::Unusable)),
        }
    }

    /// What is known of an instance of this machine in an earlier boot, if it was not left in good order since.
    fn before_boot(&self, spec: &LockspaceSpec) -> Option<RejoinEvidence> {
        self.reboots.as_ref()?.earlier_boot(spec)
    }

    fn judge(&self, text: &str, spec: &LockspaceSpec) -> Option<RejoinEvidence> {
        let boot = self.boot.as_ref()?;
        let sealed = unseal(text);
        let mut lines = sealed.or_else(|| text.strip_suffix(END))?.lines();
        if lines.next()? != if sealed.is_some() { HEADING } else { HEADING_UNSEALED } {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned);
        let recorded_boot = value("boot")?;
        let own = value("daemon")? == self.daemon;
        if own && self.newest().saved.get(&(spec.name, spec.host_id)).is_none_or(|newest| newest != text) {
            return None;
        }
        let matches = value("lockspace")? == hex(spec.name.as_bytes())
            && value("host_id")?.parse::<u64>().ok()? == spec.host_id;
        let here = sealed.is_some()
            && format!("path {}\noffset {}\n", value("path")?, value("offset")?)
                == place(&spec.path, spec.offset);
        let instance = instance(&value("generation")?, &value("io_timeout")?)?;
        let outlived = match value("outlived")?.as_str() {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        if !matches {
            return None;
        }
        let mut alive = outlived;
        for line in lines {
            let (pid, start) = line.strip_prefix("pid ")?.split_once(' ')?;
            alive |= may_live(pid.parse().ok()?, start.parse().ok()?);
        }
        Some(if !here {
            RejoinEvidence::NoProof { instance }
        } else if recorded_boot == *boot {
            RejoinEvidence::ThisBoot { instance, own, alive }
        } else {
            RejoinEvidence::OtherBoot { instance }
        })
    }

    /// Puts a record on stable storage. Whatever comes of it, no earlier one is trusted any more.
    ///
    /// # Errors
    /// The boot is unknown, or a file operation failed; then the earlier record, if any, may still be there.
    fn save(&self, newest: &mut Newest, record: &RejoinRecord, log: &Log) -> io::Result<()> {
        let RejoinRecord { spec, instance, pids, outlived } = record;
        let LockspaceSpec { name, host_id, path, offset } = spec;
        newest.saved.remove(&(*name, *host_id));
        let boot = self.boot.as_deref().ok_or_else(|| io::Error::other("the boot id is unknown"))?;
        let Instance { generation, io_timeout } = instance;
        let (outlived, daemon) = (u8::from(*outlived), &self.daemon);
        let (lockspace, place, io_timeout) = (hex(name.as_bytes()), place(path, *offset), io_timeout.secs());
        let mut text = format!(
            "{HEADING}\nboot {boot}\ndaemon {daemon}\nlockspace {lockspace}\nhost_id {host_id}\n{place}generation {generation}\n\
             io_timeout {io_timeout}\noutlived {outlived}\n"
        );
        for pid in pids {
            // 0: it is gone already, or nobody may know. Then only the absence of the pid proves anything.
            let start = process::start_time(*pid).unwrap_or(0);
            text.push_str(&format!("pid {pid} {start}\n"));
        }
        let text = seal(text);
        let path = self.path(name, *host_id);
        self.put(newest, &path, &text, log)?;
        (newest.stuck, newest.missing) = (false, false);
        newest.saved.insert((*name, *host_id), text);
        Ok(())
    }

    /// Puts a file on stable storage, and makes the run directory anew for it.
    fn put(&self, newest: &mut Newest, path: &Path, text: &str, log: &Log) -> io::Result<()> {
        match replace(&self.directory, path, text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_directory(newest, log)?;
                replace(&self.directory, path, text)
            }
            replaced => replaced,
        }
    }

    /// The run directory was removed. Its socket is not made anew: that clients do not reach the daemon is to be seen.
    fn make_directory(&self, newest: &mut Newest, log: &Log) -> io::Result<()> {
        let (said, directory) = (std::mem::replace(&mut newest.missing, true), self.directory.display());
        let made = fs::create_dir(&self.directory)
            .and_then(|()| fs::set_permissions(&self.directory, Permissions::from_mode(RUN_DIR_MODE)));
        let what = match &made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) => format!("cannot be made anew: {error}"),
            Ok(()) => "is made anew for rejoin records".to_owned(),
        };
        if !said {
            log.error(format_args!(
                "the run directory {directory} was removed and {what}; new clients do not reach this daemon"
            ));
        }
        made
    }

    /// Notes for the time after a reboot which generation this machine has joined with. Without it the join then takes long.
    fn note(&self, record: &RejoinRecord, log: &Log) {
        let Some(reboots) = &self.reboots else { return };
        if let Err(error) = reboots.note(record) {
            log.error(format_args!(
                "{}: a record cannot be written: {error}; {AFTER_REBOOT}",
                reboot::STATE_DIR
            ));
        }
    }

    /// Removes what was noted so. What stays speaks of a generation that is over.
    fn unnote(&self, lockspace: &Name, host_id: u64, log: &Log) {
        let Some(reboots) = &self.reboots else { return };
        if let Err(error) = reboots.remove(lockspace, host_id) {
            log.error(format_args!("{}: a record cannot be removed: {error}", reboot::STATE_DIR));
        }
    }

    /// Removes a record. One that is not there is no error, nor is a missing directory. It is not trusted any more, even if it stays.
    fn remove(&self, newest: &mut Newest, lockspace: &Name, host_id: u64) -> io::Result<()> {
        newest.saved.remove(&(*lockspace, host_id));
        unlink(&self.path(lockspace, host_id))?;
        match File::open(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            directory => directory?.sync_all(),
        }
    }
}

/// What both places say together.
fn evidence_of(this_boot: Option<RejoinEvidence>, before_boot: Option<RejoinEvidence>) -> RejoinEvidence {
    this_boot.or(before_boot).unwrap_or(RejoinEvidence::None)
}

/// The text of a file, of which no more than so many bytes are read.
fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(bytes_max).read_to_string(&mut text)?;
    Ok(text)
}

/// Replaces a record as a whole. When this has succeeded it is on stable storage, its name too.
fn replace(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    // Not by the starter's mask alone: who may write there may vouch for a host that is not gone.
    let create = || File::options().write(true).create(true).truncate(true).mode(0o644).open(&fresh);
    let made = match create() {
        // One that was left belongs to whoever the daemon ran as then.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            unlink(&fresh)?;
            create()
        }
        made => made,
    };
    let mut file = made?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(directory)?.sync_all()
}

/// Removes a file. One that is not there is no error.
fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a recorded process may still run. `start` 0: unknown.
fn may_live(pid: i32, start: u64) -> bool {
    match process::start_time(pid) {
        Ok(found) => start == 0 || found == start,
        Err(error) => {
            let gone = error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
            !gone
        }
    }
}

/// The instance that a record is of, from what it says.
fn instance(generation: &str, io_timeout: &str) -> Option<Instance> {
    let io_timeout = IoTimeout::new(io_timeout.parse().ok()?).ok()?;
    Some(Instance { generation: generation.parse().ok()?, io_timeout })
}

/// The lines that name a place. What is spelled otherwise counts as another one.
fn place(path: &[u8], offset: u64) -> String {
    format!("path {}\noffset {offset}\n", hex(path))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Work for the thread that writes.
#[derive(Debug)]
enum Order {
    /// Save, then acknowledge.
    Save {
        /// What.
        record: RejoinRecord,
    },
    /// Remove.
    Drop {
        /// Of which lockspace.
        lockspace: Name,
        /// As which host.
        host_id: u64,
    },
    /// What a join claims.
    Claim(Claim),
}

impl Order {
    /// Which lockspace and host id it is about.
    fn file(&self) -> (&Name, u64) {
        match self {
            Self::Save { record } => (&record.spec.name, record.spec.host_id),
            Self::Drop { lockspace, host_id } | Self::Claim(Claim { lockspace, host_id, .. }) => {
                (lockspace, *host_id)
            }
        }
    }
}

/// The thread that writes records, so that a slow run directory delays nobody but who waits for the record.
#[derive(Debug)]
pub(crate) struct Writer {
    orders: Arc<Queue>,
}

impl Writer {
    /// Starts the thread. `saved` is called with lockspace and serial of each save once it, or a newer one of that lockspace, is carried out.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(crate) fn start(
        global: Arc<Global>,
        saved: impl Fn(LockspaceId, u64) + Send + 'static,
    ) -> io::Result<Self> {
        let orders = Arc::clone(&global.records.orders);
        let inbox = Arc::clone(&orders);
        let (notes, noted) = mpsc::sync_channel::<Order>(NOTES_MAX);
        let noting = Arc::clone(&global);
        // What outlives a reboot lies on a disk of its own, which may hang or be read-only. Nobody waits for it.
        thread::spawn("sanlock-reboots", STACK, move || {
            for order in noted {
                match order {
                    // Noted when it joined. What has been given back since is not noted again because of a write that may still land.
                    Order::Save { record } if record.outlived => {}
                    Order::Save { record } => noting.records.note(&record, &noting.log),
                    Order::Drop { lockspace, host_id } => {
                        noting.records.unnote(&lockspace, host_id, &noting.log);
                    }
                    // After a reboot nothing can land any more.
                    Order::Claim(_) => {}
                }
            }
        })?;
        thread::spawn("sanlock-records", STACK, move || {
            while let Some(Queued { order, tell }) = inbox.next() {
                carry_out(&global.records, &order, &global.log);
                if let Some((ls, serial)) = tell {
                    saved(ls, serial);
                }
                if !matches!(order, Order::Claim(_)) && notes.try_send(order).is_err() {
                    global.log.error(format_args!(
                        "{}: a record is not written; {AFTER_REBOOT}",
                        reboot::STATE_DIR
                    ));
                }
            }
        })?;
        Ok(Self { orders })
    }

    /// Queues the saving of a record, which the manager knows by this serial.
    pub(crate) fn save(&self, ls: LockspaceId, serial: u64, record: RejoinRecord) {
        self.orders.push(Queued { order: Order::Save { record }, tell: Some((ls, serial)) });
    }

    /// Queues the removal of a record.
    pub(crate) fn forget(&self, lockspace: Name, host_id: u64) {
        self.orders.push(Queued { order: Order::Drop { lockspace, host_id }, tell: None });
    }

    /// Before the end: what is to be removed should be.
    pub(crate) fn finish(&self, limit: Duration) {
        self.orders.settle(limit);
    }

    /// Saves under way.
    pub(crate) fn saves(&self) -> usize {
        self.orders.saves()
    }
}

impl Drop for Writer {
    /// The thread ends when it has carried out what is queued.
    fn drop(&mut self) {
        self.orders.close();
    }
}

/// Ends whether or not it succeeds: grants, the ends of lockspaces and the end of the daemon come after it.
fn carry_out(records: &Records, order: &Order, log: &Log) {
    let mut newest = records.newest();
    if let Order::Claim(claim) = order {
        return records.carry_out_claim(&mut newest, claim, log);
    }
    if let Order::Save { record } = order {
        match records.save(&mut newest, record, log) {
            Ok(()) => return,
            Err(error) if newest.missing && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => log.error(format_args!("rejoin record cannot be written: {error}")),
        }
    }
    let (lockspace, host_id) = order.file();
    // A record that lacks a process would vouch for an end that nobody has seen; one of a lease that was given back speaks of a
    // generation that is over.
    if let Err(error) = records.remove(&mut newest, lockspace, host_id) {
        if !std::mem::replace(&mut newest.stuck, true) {
            log.error(format_args!("rejoin record cannot be removed: {error}; it counts no more"));
        }
    }
}

#[cfg(test)]
mod tests;
