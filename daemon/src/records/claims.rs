//! Claims: the largest generation with which a join of this host may be about to make a host id its own.
//!
//! A claim is on record before it is written to the lease, until it has failed for certain, or the host id is given back (unless an earlier
//! one was there before it). A daemon that comes after the one which made it does not know what became of it, for its write may have failed
//! and land all the same. It takes another generation: of two instances that others cannot tell apart one would be judged by the io timeout
//! of the other, and one that seems to be older than a claim that lands is dead to everybody. (Beside a lease that has the same generation a
//! claim costs none.)
//!
//! One file per lockspace and host id, in the run directory. After a reboot nothing can land any more, and a claim that stays costs a number.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::text::LockspaceSpec;

use super::asking::{Patience, Unread, errno};
use super::form::{seal, unseal};
use super::queue::Queued;
use super::{Newest, Order, Records, read, unlink};
use crate::log::Log;

/// First line of a claim.
const HEADING: &str = "sanlock claim 1";
/// Bytes of the largest claim that is read.
const CLAIM_BYTES_MAX: u64 = 1024;

/// A generation that is to be on record, or 0 if none is.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) lockspace: Name,
    pub(super) host_id: u64,
    generation: u64,
    /// Who waits for it.
    done: Option<SyncSender<io::Result<()>>>,
}

impl Records {
    pub(super) fn claim_path(&self, spec: &LockspaceSpec) -> PathBuf {
        self.path_of_claim(&spec.name, spec.host_id)
    }

    fn path_of_claim(&self, lockspace: &Name, host_id: u64) -> PathBuf {
        self.path_of("claim", lockspace, host_id)
    }

    /// The generation that is on record as claimed; 0 without one.
    ///
    /// # Errors
    /// It cannot be read, or is not what was written.
    pub(super) fn claimed(&self, spec: &LockspaceSpec) -> io::Result<u64> {
        let text = match read(&self.claim_path(spec), CLAIM_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            read => read?,
        };
        let lines =
            unseal(&text).and_then(|lines| lines.strip_prefix(HEADING)?.strip_prefix("\ngeneration "));
        let generation = lines.and_then(|number| number.strip_suffix('\n')?.parse().ok());
        generation.ok_or_else(|| io::Error::new(
                io::ErrorKind::InvalidData,
                "this claim of a generation is damaged; remove the file once nothing that an earlier daemon wrote can be on its way",
            ))
    }

    /// Has a generation recorded as claimed, or none (0), and waits for it, for `limit` at most and while it is `wanted`.
    ///
    /// # Errors
    /// It is not on record in time, and may be later; or nobody wants it any more.
    pub(crate) fn claim(
        &self,
        spec: &LockspaceSpec,
        generation: u64,
        limit: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), Unread> {
        let (done, heard) = mpsc::sync_channel(1);
        let patience = Patience::new(limit, wanted);
        self.order(spec.name, spec.host_id, generation, Some(done));
        patience.hear(&heard)?.map_err(|error| Unread::Failed(IoFailure::Os(errno(&error))))
    }

    fn order(
        &self,
        lockspace: Name,
        host_id: u64,
        generation: u64,
        done: Option<SyncSender<io::Result<()>>>,
    ) {
        let claim = Claim { lockspace, host_id, generation, done };
        self.orders.push(Queued { order: Order::Claim(claim), tell: None });
    }

    /// Puts a claim on stable storage, or removes what is there.
    pub(super) fn carry_out_claim(&self, newest: &mut Newest, claim: &Claim, log: &Log) {
        let Claim { lockspace, host_id, generation, done } = claim;
        let path = self.path_of_claim(lockspace, *host_id);
        let result = match generation {
            0 => unlink(&path),
            generation => {
                self.put(newest, &path, &seal(format!("{HEADING}\ngeneration {generation}\n")), log)
            }
        };
        if let Err(error) = &result {
            log.error(format_args!("{}: a claim cannot be written or removed: {error}", path.display()));
        }
        if let Some(done) = done {
            // Nobody may be waiting any more.
            let _ = done.try_send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(30);

    fn spec(name: &str) -> LockspaceSpec {
        LockspaceSpec { name: Name::new(name.as_bytes()).unwrap(), host_id: 7, ..LockspaceSpec::default() }
    }

    /// Carries out what is queued, as the thread does that writes.
    fn work(records: &Records) {
        records.orders.close();
        while let Some(Queued { order, .. }) = records.orders.next() {
            super::super::carry_out(records, &order, &Log::in_memory());
        }
    }

    #[test]
    fn a_claim_is_on_record_until_it_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let records = Arc::new(Records::new(dir.path(), None));
        let writer = Arc::clone(&records);
        let ls = spec("LS/1");
        assert_eq!(records.claimed(&ls).unwrap(), 0);
        let thread = std::thread::spawn(move || {
            for _ in 0..3 {
                let Queued { order, .. } = writer.orders.next().unwrap();
                super::super::carry_out(&writer, &order, &Log::in_memory());
            }
        });
        for generation in [3, u64::MAX, 0] {
            records.claim(&ls, generation, LONG, &|| true).unwrap();
            // Whoever reads it: another daemon too.
            assert_eq!(Records::new(dir.path(), None).claimed(&ls).unwrap(), generation);
            assert_eq!(records.claimed(&spec("other")).unwrap(), 0);
            assert_eq!(records.claimed(&LockspaceSpec { host_id: 8, ..ls.clone() }).unwrap(), 0);
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_damaged_claim_is_none_that_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path(), None);
        records.order(spec("a").name, 7, 12, None);
        work(&records);
        let path = records.claim_path(&spec("a"));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(records.claimed(&spec("a")).unwrap(), 12);
        for damaged in [&text[1..], &text.replace("12", "13"), ""] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(records.claimed(&spec("a")).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_claim_that_cannot_be_written_is_not_waited_for_longer_than_asked() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path(), None);
        let short = Duration::from_millis(50);
        let claim = |wanted: bool| records.claim(&spec("a"), 1, short, &|| wanted);
        assert_eq!(claim(true), Err(Unread::Failed(IoFailure::TimedOut)), "nobody writes");
        assert_eq!(claim(false), Err(Unread::Unwanted));
        work(&records);
        assert_eq!(records.claimed(&spec("a")).unwrap(), 1, "it may be there later");
        let path = records.claim_path(&spec("a"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let (done, heard) = mpsc::sync_channel(1);
        let records = Records::new(dir.path(), None);
        records.order(spec("a").name, 7, 1, Some(done));
        work(&records);
        assert!(heard.recv().unwrap().is_err());
        assert!(records.claimed(&spec("a")).is_err());
    }

    #[test]
    fn a_run_directory_that_was_removed_is_made_anew_for_a_claim() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("run");
        let records = Records::new(&directory, None);
        records.order(spec("a").name, 7, 5, None);
        work(&records);
        assert_eq!(records.claimed(&spec("a")).unwrap(), 5);
    }
}
