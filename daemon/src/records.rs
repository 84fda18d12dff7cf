//! Rejoin records (rule R7): what the run directory says of each joined lockspace, so that a daemon that starts anew knows
//! whether processes of the earlier one may still use what it held.
//!
//! One small text file per lockspace and host id. It is replaced as a whole and is on stable storage, its name too, before it
//! is acknowledged. A record that cannot be written is removed: no record means the long wait, a stale one would not.

pub(crate) mod reboot;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use reboot::Reboots;
use sanlock_lease::geometry::HostId;
use sanlock_lease::name::Name;
use sanlock_manager::rejoin::{RejoinEvidence, RejoinRecord};
use sanlock_sys::process;

use crate::global::Global;
use crate::log::Log;

/// First line of a record.
const HEADING: &str = "sanlock rejoin record 2";
/// Last line: a record without it was cut.
const END: &str = "end";
/// What follows.
pub(crate) const AFTER_REBOOT: &str = "after a reboot this host waits for its own old lease";
/// Bytes of the largest record that is read: a thousand processes and more.
const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// Stack of the thread that writes.
const STACK: usize = 96 * 1024;
/// Records for the time after a reboot that wait for their disk.
const NOTES_MAX: usize = 1024;
/// Pause before a record that can be neither written nor removed is tried again.
const RETRY: Duration = Duration::from_secs(1);

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
}

impl Records {
    /// The records in this run directory.
    pub(crate) fn new(run_dir: &Path, reboots: Option<Reboots>) -> Self {
        let daemon = uuid::Uuid::new_v4().to_string();
        Self { directory: run_dir.to_owned(), boot: process::boot_id().ok(), daemon, reboots }
    }

    fn path(&self, lockspace: &Name, host_id: u64) -> PathBuf {
        self.directory.join(format!("rejoin-{}-{host_id}", hex(lockspace.as_bytes())))
    }

    /// What is known of an earlier instance of this host in a lockspace.
    pub(crate) fn evidence(&self, lockspace: &Name, host: HostId) -> RejoinEvidence {
        let mut text = String::new();
        let read = File::open(self.path(lockspace, host.get()))
            .and_then(|file| file.take(RECORD_BYTES_MAX).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let earlier = self.reboots.as_ref().and_then(|reboots| reboots.earlier_boot(lockspace, host));
                earlier.map_or(RejoinEvidence::None, |generation| RejoinEvidence::OtherBoot { generation })
            }
            Err(_) => RejoinEvidence::Unusable,
            Ok(_) => self.judge(&text, lockspace, host).unwrap_or(RejoinEvidence::Unusable),
        }
    }

    fn judge(&self, text: &str, lockspace: &Name, host: HostId) -> Option<RejoinEvidence> {
        let boot = self.boot.as_ref()?;
        let mut lines = text.lines();
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned);
        if value("sanlock")? != HEADING.strip_prefix("sanlock ")? {
            return None;
        }
        let recorded_boot = value("boot")?;
        let own = value("daemon")? == self.daemon;
        let matches = value("lockspace")? == hex(lockspace.as_bytes())
            && value("host_id")?.parse::<u64>().ok()? == host.get();
        let generation = value("generation")?.parse().ok()?;
        let outlived = match value("outlived")?.as_str() {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        if !matches {
            return None;
        }
        let mut alive = outlived;
        loop {
            let line = lines.next()?;
            if line == END {
                break;
            }
            let (pid, start) = line.strip_prefix("pid ")?.split_once(' ')?;
            alive |= may_live(pid.parse().ok()?, start.parse().ok()?);
        }
        Some(if recorded_boot == *boot {
            RejoinEvidence::ThisBoot { generation, own, alive }
        } else {
            RejoinEvidence::OtherBoot { generation }
        })
    }

    /// Notes that something of an instance that was given up may still land: no daemon is to take its place at once.
    pub(crate) fn outlived(&self, lockspace: Name, host: HostId, generation: u64, log: &Log) {
        let record =
            RejoinRecord { lockspace, host_id: host.get(), generation, pids: Vec::new(), outlived: true };
        carry_out(self, &Order::Save { record }, log);
    }

    /// Puts a record on stable storage.
    ///
    /// # Errors
    /// The boot is unknown, or a file operation failed; then the earlier record, if any, is still there.
    fn save(&self, record: &RejoinRecord) -> io::Result<()> {
        let boot = self.boot.as_deref().ok_or_else(|| io::Error::other("the boot id is unknown"))?;
        let RejoinRecord { lockspace, host_id, generation, pids, outlived } = record;
        let (outlived, daemon) = (u8::from(*outlived), &self.daemon);
        let name = hex(lockspace.as_bytes());
        let mut text = format!(
            "{HEADING}\nboot {boot}\ndaemon {daemon}\nlockspace {name}\nhost_id {host_id}\ngeneration {generation}\noutlived {outlived}\n"
        );
        for pid in pids {
            // 0: it is gone already, or nobody may know. Then only the absence of the pid proves anything.
            let start = process::start_time(*pid).unwrap_or(0);
            text.push_str(&format!("pid {pid} {start}\n"));
        }
        text.push_str(END);
        text.push('\n');
        let path = self.path(lockspace, *host_id);
        replace(&self.directory, &path, &text)
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

    /// Removes a record. One that is not there is no error.
    fn remove(&self, lockspace: &Name, host_id: u64) -> io::Result<()> {
        unlink(&self.path(lockspace, host_id))?;
        File::open(&self.directory)?.sync_all()
    }
}

/// Replaces a record as a whole. When this has succeeded it is on stable storage, its name too.
fn replace(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Work for the thread that writes.
#[derive(Debug)]
pub(crate) enum Order {
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
}

/// The thread that writes records, so that a slow run directory delays nobody but who waits for the record.
#[derive(Debug)]
pub(crate) struct Writer {
    orders: mpsc::Sender<(Order, u64)>,
}

impl Writer {
    /// Starts the thread. `saved` is called with the number of each order once it is carried out.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(crate) fn start(global: Arc<Global>, saved: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let (orders, inbox) = mpsc::channel::<(Order, u64)>();
        let (notes, noted) = mpsc::sync_channel::<Order>(NOTES_MAX);
        let noting = Arc::clone(&global);
        // What outlives a reboot lies on a disk of its own, which may hang or be read-only. Nobody waits for it.
        thread::Builder::new().name("sanlock-reboots".to_owned()).stack_size(STACK).spawn(move || {
            for order in noted {
                match order {
                    Order::Save { record } => noting.records.note(&record, &noting.log),
                    Order::Drop { lockspace, host_id } => {
                        noting.records.unnote(&lockspace, host_id, &noting.log);
                    }
                }
            }
        })?;
        thread::Builder::new().name("sanlock-records".to_owned()).stack_size(STACK).spawn(move || {
            for (order, number) in inbox {
                carry_out(&global.records, &order, &global.log);
                saved(number);
                if notes.try_send(order).is_err() {
                    global.log.error(format_args!(
                        "{}: a record is not written; {AFTER_REBOOT}",
                        reboot::STATE_DIR
                    ));
                }
            }
        })?;
        Ok(Self { orders })
    }

    /// Queues an order.
    pub(crate) fn order(&self, order: Order, number: u64) {
        // The thread ends only when this sender is dropped.
        let _ = self.orders.send((order, number));
    }
}

fn carry_out(records: &Records, order: &Order, log: &Log) {
    let (lockspace, host_id) = match order {
        Order::Save { record } => {
            match records.save(record) {
                Ok(()) => return,
                Err(error) => log.error(format_args!("rejoin record cannot be written: {error}")),
            }
            (record.lockspace, record.host_id)
        }
        Order::Drop { lockspace, host_id } => {
            // The lease was given back: the record speaks of a generation that is over.
            if let Err(error) = records.remove(lockspace, *host_id) {
                log.error(format_args!("rejoin record cannot be removed: {error}"));
            }
            return;
        }
    };
    // A record that lacks a process would vouch for an end that nobody has seen.
    while let Err(error) = records.remove(&lockspace, host_id) {
        log.error(format_args!("rejoin record cannot be removed, trying again: {error}"));
        thread::sleep(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: u64 = 7;

    fn record(pids: Vec<i32>) -> RejoinRecord {
        RejoinRecord { lockspace: name("LS/1"), host_id: HOST, generation: 3, pids, outlived: false }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn host() -> HostId {
        HostId::new(HOST).unwrap()
    }

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn a_record_tells_whether_its_processes_live() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path(), None);
        let evidence = |records: &Records| records.evidence(&name("LS/1"), host());
        assert_eq!(evidence(&records), RejoinEvidence::None);
        records.save(&record(vec![])).unwrap();
        assert_eq!(evidence(&records), RejoinEvidence::ThisBoot { generation: 3, own: true, alive: false });
        records.save(&RejoinRecord { outlived: true, ..record(vec![]) }).unwrap();
        assert_eq!(evidence(&records), RejoinEvidence::ThisBoot { generation: 3, own: true, alive: true });
        records.save(&record(vec![own_pid()])).unwrap();
        assert_eq!(evidence(&records), RejoinEvidence::ThisBoot { generation: 3, own: true, alive: true });
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        records.save(&record(vec![i32::try_from(child.id()).unwrap()])).unwrap();
        assert_eq!(evidence(&records), RejoinEvidence::ThisBoot { generation: 3, own: true, alive: true });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(evidence(&records), RejoinEvidence::ThisBoot { generation: 3, own: true, alive: false });
        assert_eq!(records.evidence(&name("LS/1"), HostId::new(8).unwrap()), RejoinEvidence::None);
        let other = Records::new(dir.path(), None);
        let found = RejoinEvidence::ThisBoot { generation: 3, own: false, alive: false };
        assert_eq!(evidence(&other), found, "another life of the daemon");
        let rebooted = Records { boot: Some("another".to_owned()), ..Records::new(dir.path(), None) };
        assert_eq!(evidence(&rebooted), RejoinEvidence::OtherBoot { generation: 3 });
        let unsure = Records { boot: None, ..Records::new(dir.path(), None) };
        assert_eq!(evidence(&unsure), RejoinEvidence::Unusable);
        records.save(&RejoinRecord { outlived: true, ..record(vec![]) }).unwrap();
        assert_eq!(evidence(&records), RejoinEvidence::ThisBoot { generation: 3, own: true, alive: true });
        records.remove(&name("LS/1"), HOST).unwrap();
        records.remove(&name("LS/1"), HOST).unwrap();
        assert_eq!(evidence(&records), RejoinEvidence::None);
    }

    #[test]
    fn a_damaged_record_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path(), None);
        records.save(&record(vec![own_pid(), 1])).unwrap();
        let path = records.path(&name("LS/1"), HOST);
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() - 1 {
            fs::write(&path, &whole[..cut]).unwrap();
            let found = records.evidence(&name("LS/1"), host());
            assert_eq!(found, RejoinEvidence::Unusable, "cut at {cut}");
        }
        fs::write(&path, [0xff; 100]).unwrap();
        assert_eq!(records.evidence(&name("LS/1"), host()), RejoinEvidence::Unusable);
        // Another lockspace's record under our name.
        let other = RejoinRecord { lockspace: name("other"), ..record(vec![]) };
        records.save(&other).unwrap();
        fs::rename(records.path(&name("other"), HOST), &path).unwrap();
        assert_eq!(records.evidence(&name("LS/1"), host()), RejoinEvidence::Unusable);
    }

    #[test]
    fn a_reused_pid_is_another_process_and_an_unknown_start_proves_only_absence() {
        let start = process::start_time(own_pid()).unwrap();
        assert!(may_live(own_pid(), start) && !may_live(own_pid(), start + 1));
        assert!(may_live(own_pid(), 0));
        assert!(!may_live(i32::MAX, 0));
    }

    #[test]
    fn a_record_that_cannot_be_written_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path(), None);
        records.save(&record(vec![])).unwrap();
        // A directory in the way of the new file.
        let path = records.path(&name("LS/1"), HOST);
        fs::create_dir(path.with_extension("new")).unwrap();
        carry_out(&records, &Order::Save { record: record(vec![own_pid()]) }, &Log::in_memory());
        assert_eq!(records.evidence(&name("LS/1"), host()), RejoinEvidence::None);
    }
}
